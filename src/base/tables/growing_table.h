// Writes a table incrementally, byte-identical to Table::write_csv() and Table::write_parquet() of
// the whole table. At most one row group is kept in memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/io/output_file.h"
#include "base/tables/parquet_stream.h"
#include "qkscope/tables.h"

namespace qkscope {

class GrowingTable {
 public:
  // Writes PATH.parquet and, if `csv` is set, PATH.csv. Both files appear at finish().
  GrowingTable(std::string path, bool csv);

  // Appends rows. Returns false and appends nothing if names or types differ from the first part.
  bool append(std::vector<Table::Column> part);
  void finish();

 private:
  void write_group(std::int64_t rows);

  std::string path_;
  std::optional<OutputFile> csv_;
  std::unique_ptr<AtomicParquetFile> parquet_;
  std::vector<Table::Column> waiting_;  // rows not yet written, less than a row group
  std::int64_t rows_ = 0;               // in waiting_
  bool begun_ = false;
};

}  // namespace qkscope
