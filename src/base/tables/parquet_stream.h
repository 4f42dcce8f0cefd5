// Parquet tables that are written and read piece by piece, a row group each, so that memory does
// not grow with them.
#pragma once

#include <memory>
#include <string>

#include "qkscope/tables.h"

namespace qkscope {

class ParquetTableWriter {
 public:
  // The file is not whole before finish().
  explicit ParquetTableWriter(std::string path);
  ~ParquetTableWriter();
  ParquetTableWriter(const ParquetTableWriter&) = delete;
  ParquetTableWriter& operator=(const ParquetTableWriter&) = delete;

  // A row group. All have the columns of the first, which may have no rows.
  void append(const Table& rows);
  void finish();  // and the data are on the disk

 private:
  struct State;
  std::unique_ptr<State> state_;
};

class ParquetTableReader {
 public:
  // Bad input where it is not a readable Parquet file.
  explicit ParquetTableReader(const std::string& path);
  ~ParquetTableReader();

  int groups() const;
  Table read(int group) const;  // integers that are null are Table::kNoInteger

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace qkscope
