#include "base/tables/whole_parquet.h"

#include <algorithm>
#include <cstdio>

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <parquet/arrow/writer.h>

#include "base/io/arrow_error.h"
#include "base/io/output_file.h"
#include "base/tables/arrow_columns.h"

namespace qkscope {

struct WholeParquetFile::State {
  std::string path;
  std::string temporary;  // "" when it is in its place
  std::shared_ptr<arrow::io::FileOutputStream> stream;
  std::unique_ptr<parquet::arrow::FileWriter> writer;

  void check(const arrow::Status& status) const {
    check_arrow(status, "writing " + path, ErrorKind::failure);
  }
  template <typename T>
  T take(arrow::Result<T> result) const {
    return take_arrow(std::move(result), "writing " + path, ErrorKind::failure);
  }
};

WholeParquetFile::WholeParquetFile(const std::string& path, const arrow::Schema& schema)
    : state_(std::make_unique<State>()) {
  state_->path = path;
  state_->temporary = temporary_name(path);
  state_->stream = state_->take(arrow::io::FileOutputStream::Open(state_->temporary));
  state_->writer = state_->take(parquet::arrow::FileWriter::Open(
      schema, table_memory(), state_->stream, table_properties(schema)));
}

WholeParquetFile::~WholeParquetFile() {
  if (!state_->temporary.empty()) std::remove(state_->temporary.c_str());
}

void WholeParquetFile::append(const arrow::Table& rows) {
  state_->check(state_->writer->WriteTable(rows, std::max<std::int64_t>(1, rows.num_rows())));
}

void WholeParquetFile::finish() {
  state_->check(state_->writer->Close());
  state_->check(state_->stream->Close());
  move_into_place(state_->temporary, state_->path);
  state_->temporary.clear();
}

}  // namespace qkscope
