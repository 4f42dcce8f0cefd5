// Parquet tables that are written and read one row group at a time, so that memory stays bounded.
#pragma once

#include <memory>
#include <string>

#include <arrow/type_fwd.h>

#include "qkscope/tables.h"

namespace qkscope {

struct ParquetOutput;

// Writes to the final path directly; the file is incomplete until finish().
class ParquetTableWriter {
 public:
  explicit ParquetTableWriter(std::string path);
  ~ParquetTableWriter();
  ParquetTableWriter(const ParquetTableWriter&) = delete;
  ParquetTableWriter& operator=(const ParquetTableWriter&) = delete;

  // Appends a row group. The first call defines the columns and may have no rows.
  void append(const Table& rows);
  void finish();  // includes fsync of the data

 private:
  std::unique_ptr<ParquetOutput> output_;
};

// Writes to a temporary file that finish() renames. Without finish() nothing is left behind.
class AtomicParquetFile {
 public:
  AtomicParquetFile(const std::string& path, const arrow::Schema& schema);
  ~AtomicParquetFile();
  AtomicParquetFile(const AtomicParquetFile&) = delete;
  AtomicParquetFile& operator=(const AtomicParquetFile&) = delete;

  void append(const arrow::Table& rows);  // a row group
  void finish();

 private:
  std::string temporary_;  // "" after finish()
  std::unique_ptr<ParquetOutput> output_;
};

class ParquetTableReader {
 public:
  // Throws bad input if the file is not a readable Parquet file.
  explicit ParquetTableReader(const std::string& path);
  ~ParquetTableReader();

  int groups() const;
  // Reads one row group. Null integers and booleans are Table::kNoInteger.
  Table read(int group) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace qkscope
