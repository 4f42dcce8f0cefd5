// A table that is written while its parts come, with the bytes of one that is written at once. Up
// to one row group is in memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/io/output_file.h"
#include "base/tables/whole_parquet.h"
#include "qkscope/tables.h"

namespace qkscope {

class GrowingTable {
 public:
  // Writes PATH.parquet, and PATH.csv where asked for. They appear at finish().
  GrowingTable(std::string path, bool csv);

  // Rows with the columns of the first part. False, and nothing is added, where they have others.
  bool append(std::vector<Table::Column> part);
  void finish();

 private:
  void write_group(std::int64_t rows);

  std::string path_;
  std::optional<OutputFile> csv_;
  std::unique_ptr<WholeParquetFile> parquet_;
  std::vector<Table::Column> waiting_;  // less than a row group
  std::int64_t rows_ = 0;               // of those
  bool begun_ = false;
};

}  // namespace qkscope
