#include "base/tables/parquet_stream.h"

#include <vector>

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <fmt/format.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/writer.h>

#include "base/io/arrow_error.h"
#include "base/io/output_file.h"
#include "base/io/folder.h"
#include "base/tables/arrow_columns.h"

namespace qkscope {

struct ParquetTableWriter::State {
  std::string path;
  std::shared_ptr<arrow::io::FileOutputStream> stream;
  std::unique_ptr<parquet::arrow::FileWriter> writer;

  void check(const arrow::Status& status) const {
    check_arrow(status, fmt::format("writing {}", path), ErrorKind::failure);
  }
  template <typename T>
  T take(arrow::Result<T> result) const {
    return take_arrow(std::move(result), fmt::format("writing {}", path), ErrorKind::failure);
  }
};

ParquetTableWriter::ParquetTableWriter(std::string path) : state_(std::make_unique<State>()) {
  state_->path = std::move(path);
  state_->stream = state_->take(arrow::io::FileOutputStream::Open(state_->path));
}

ParquetTableWriter::~ParquetTableWriter() = default;

void ParquetTableWriter::append(const Table& rows) {
  const auto table = to_arrow(rows);
  if (!state_->writer)
    state_->writer = state_->take(parquet::arrow::FileWriter::Open(
        *table->schema(), table_memory(), state_->stream, table_properties(*table->schema())));
  if (rows.rows() > 0) state_->check(state_->writer->WriteTable(*table, rows.rows()));
}

void ParquetTableWriter::finish() {
  if (state_->writer) state_->check(state_->writer->Close());
  state_->check(state_->stream->Close());
  sync_file(state_->path);
}

struct ParquetTableReader::State {
  std::string path;
  std::unique_ptr<parquet::arrow::FileReader> reader;

  void check(const arrow::Status& status) const {
    check_arrow(status, path + ": not a readable Parquet file", ErrorKind::bad_input);
  }
};

ParquetTableReader::ParquetTableReader(const std::string& path)
    : state_(std::make_unique<State>()) {
  state_->path = path;
  check_regular_file(path);
  const auto file = take_arrow(arrow::io::ReadableFile::Open(path), path, ErrorKind::bad_input);
  parquet::arrow::FileReaderBuilder builder;
  state_->check(builder.Open(file));
  state_->check(builder.Build(&state_->reader));
}

ParquetTableReader::~ParquetTableReader() = default;

int ParquetTableReader::groups() const {
  return state_->reader->num_row_groups();
}

Table ParquetTableReader::read(int group) const {
  std::shared_ptr<arrow::Table> rows;
  state_->check(state_->reader->RowGroup(group)->ReadTable(&rows));
  std::vector<Table::Column> columns;
  for (int i = 0; i < rows->num_columns(); ++i) {
    const auto& name = rows->field(i)->name();
    columns.push_back(from_arrow(name, *rows->column(i), Gaps::keep,
                                 fmt::format("{}: column '{}'", state_->path, name)));
  }
  return Table(std::move(columns));
}

}  // namespace qkscope
