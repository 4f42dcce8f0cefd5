// Parquet tables that are written and read one row group at a time, so that memory stays bounded.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <arrow/type_fwd.h>

#include "base/io/output_file.h"
#include "qkscope/tables.h"

namespace parquet::arrow {
class FileReader;
}

namespace qkscope {

struct ParquetOutput;

// Parquet writer for tables. Writes to the final path; the file is incomplete until finish().
class ParquetTableWriter {
 public:
  explicit ParquetTableWriter(const std::string& path);
  ~ParquetTableWriter();

  // Appends a row group. The first call defines the columns; its table may be empty.
  void append(const Table& rows);
  void finish();  // includes fsync of the data

 private:
  std::unique_ptr<ParquetOutput> output_;
};

// Parquet file at a temporary path. finish() moves it into place; otherwise, it is deleted.
class AtomicParquetFile {
 public:
  // With `keeps_types`, the file stores the Arrow schema, which preserves types like large_string.
  AtomicParquetFile(const std::string& path, const arrow::Schema& schema, bool keeps_types = false);
  ~AtomicParquetFile();

  void append(const arrow::Table& rows);  // appends one row group
  void finish();

 private:
  std::string temporary_;  // path of the temporary file; "" after finish()
  FileDescriptor lock_;    // on the temporary file
  std::unique_ptr<ParquetOutput> output_;
};

// Returns whether two lists of columns have the same names and types in the same order.
bool have_same_columns(const std::vector<Table::Column>& a, const std::vector<Table::Column>& b);

class ParquetTableReader {
 public:
  // Throws a bad-input error if the file is not a readable Parquet file.
  explicit ParquetTableReader(const std::string& path);
  ~ParquetTableReader();

  int row_group_count() const;
  // Reads one row group. Null integers and booleans are Table::kNoInteger.
  Table read_row_group(int group) const;

 private:
  std::string path_;
  std::unique_ptr<parquet::arrow::FileReader> reader_;
};

// Writes a table incrementally, byte-identical to Table::write_csv() and Table::write_parquet() of
// the whole table. At most one row group is kept in memory.
class TableFileAppender {
 public:
  // Writes PATH.parquet and, if `csv` is set, PATH.csv. Both files appear at finish().
  TableFileAppender(std::string path, bool csv);

  // Appends rows. Returns false and appends nothing if names or types differ from the first call's.
  bool append(std::vector<Table::Column> part);
  void finish();

 private:
  void write_row_group(std::int64_t rows);

  std::string path_;
  std::optional<OutputFile> csv_;
  std::unique_ptr<AtomicParquetFile> parquet_;
  std::shared_ptr<arrow::Table> waiting_;  // rows not yet written; null before the first part
};

struct NamedTableFile {
  std::string name;  // value of the added first column for the rows of this file
  std::string path;
};

// Throws a bad-input error if concat_tables() would reject the columns of the files.
void check_compatible_columns(const std::string& column, const std::vector<NamedTableFile>& files);

// Concatenates the rows of all files into a new Parquet file and returns the number of rows. The
// first column, named `column`, is text and holds the name of the file that a row comes from. The
// other columns are the union over all files, matched by name; null where a file lacks a column.
// Throws a bad-input error if a column has different types or is named `column`. One row group is
// in memory at a time, and the output is renamed into place at the end.
std::int64_t concat_tables(const std::string& column, const std::vector<NamedTableFile>& files,
                           const std::string& path);

}  // namespace qkscope
