#include "base/tables/parquet_stream.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <fmt/format.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/writer.h>

#include "base/io/arrow_error.h"
#include "base/io/output_file.h"
#include "base/tables/arrow_columns.h"

namespace qkscope {

// An open Parquet file. `path` is the name in error messages, `file` the path on disk.
struct ParquetOutput {
  ParquetOutput(std::string name, const std::string& file)
      : path(std::move(name)), stream(take(arrow::io::FileOutputStream::Open(file))) {}

  void write_schema(const arrow::Schema& schema) {
    writer = take(
        parquet::arrow::FileWriter::Open(schema, table_memory(), stream, table_properties(schema)));
  }
  void append(const arrow::Table& rows) const {
    check(writer->WriteTable(rows, std::max<std::int64_t>(1, rows.num_rows())));
  }
  void close() const {
    if (writer) check(writer->Close());
    check(stream->Close());
  }

  void check(const arrow::Status& status) const {
    check_arrow(status, "writing " + path, ErrorKind::failure);
  }
  template <typename T>
  T take(arrow::Result<T> result) const {
    check(result.status());
    return std::move(result).ValueUnsafe();
  }

  std::string path;
  std::shared_ptr<arrow::io::FileOutputStream> stream;
  std::unique_ptr<parquet::arrow::FileWriter> writer;
};

ParquetTableWriter::ParquetTableWriter(std::string path)
    : output_(std::make_unique<ParquetOutput>(path, path)) {}

ParquetTableWriter::~ParquetTableWriter() = default;

void ParquetTableWriter::append(const Table& rows) {
  const auto table = to_arrow(rows);
  if (!output_->writer) output_->write_schema(*table->schema());
  if (rows.rows() > 0) output_->append(*table);
}

void ParquetTableWriter::finish() {
  output_->close();
  sync_file(output_->path);
}

AtomicParquetFile::AtomicParquetFile(const std::string& path, const arrow::Schema& schema)
    : temporary_(temporary_name(path)), output_(std::make_unique<ParquetOutput>(path, temporary_)) {
  output_->write_schema(schema);
}

AtomicParquetFile::~AtomicParquetFile() {
  if (!temporary_.empty()) std::remove(temporary_.c_str());
}

void AtomicParquetFile::append(const arrow::Table& rows) {
  output_->append(rows);
}

void AtomicParquetFile::finish() {
  output_->close();
  move_into_place(temporary_, output_->path);
  temporary_.clear();
}

struct ParquetTableReader::State {
  std::string path;
  std::unique_ptr<parquet::arrow::FileReader> reader;
};

ParquetTableReader::ParquetTableReader(const std::string& path)
    : state_(std::make_unique<State>(State{path, open_parquet(path)})) {}

ParquetTableReader::~ParquetTableReader() = default;

int ParquetTableReader::groups() const {
  return state_->reader->num_row_groups();
}

Table ParquetTableReader::read(int group) const {
  std::shared_ptr<arrow::Table> rows;
  check_parquet_read(state_->reader->RowGroup(group)->ReadTable(&rows), state_->path);
  std::vector<Table::Column> columns;
  for (int i = 0; i < rows->num_columns(); ++i) {
    const auto& name = rows->field(i)->name();
    columns.push_back(from_arrow(name, *rows->column(i), NullIntegers::keep,
                                 fmt::format("{}: column '{}'", state_->path, name)));
  }
  return Table(std::move(columns));
}

}  // namespace qkscope
