#include "dataset/head_writer.h"

#include <cerrno>
#include <filesystem>

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <fmt/format.h>
#include <parquet/arrow/writer.h>
#include <parquet/properties.h>
#include <unistd.h>

#include "core/error.h"
#include "dataset/arrow_status.h"

namespace qkscope {
namespace {

std::shared_ptr<arrow::Schema> head_schema(const HeadWriterOptions& options) {
  const auto element = arrow::field("element", arrow::float32());
  arrow::FieldVector fields = {
      arrow::field("bucket", arrow::int32()), arrow::field("example_id", arrow::int32()),
      arrow::field("position", arrow::int32()),
      arrow::field("vector", arrow::fixed_size_list(element, options.head_dim)),
      arrow::field("sliding_window", arrow::int32())};
  if (options.token_strings) fields.push_back(arrow::field("token_str", arrow::utf8()));
  const auto metadata = std::make_shared<arrow::KeyValueMetadata>();
  for (const auto& [key, value] : options.metadata) metadata->Append(key, value);
  return arrow::schema(fields, metadata);
}

// Vectors have no repeated values worth a dictionary; their bytes compress better plane by plane.
std::shared_ptr<parquet::WriterProperties> writer_properties(std::int64_t row_group_size) {
  return parquet::WriterProperties::Builder()
      .compression(parquet::Compression::ZSTD)
      ->disable_dictionary("vector.list.element")
      ->encoding("vector.list.element", parquet::Encoding::BYTE_STREAM_SPLIT)
      ->disable_statistics("vector.list.element")
      ->max_row_group_length(row_group_size)
      ->build();
}

template <typename T>
std::shared_ptr<arrow::Buffer> copy_of(std::span<const T> values) {
  return arrow::Buffer::FromString(
      std::string(reinterpret_cast<const char*>(values.data()), values.size_bytes()));
}

std::shared_ptr<arrow::Array> int_array(std::span<const std::int32_t> values) {
  return std::make_shared<arrow::Int32Array>(static_cast<std::int64_t>(values.size()),
                                             copy_of(values));
}

}  // namespace

struct HeadWriter::State {
  std::string path;
  std::string temporary;
  HeadWriterOptions options;
  std::shared_ptr<arrow::Schema> schema;
  std::shared_ptr<arrow::io::FileOutputStream> stream;
  std::unique_ptr<parquet::arrow::FileWriter> writer;
  std::vector<std::shared_ptr<arrow::RecordBatch>> pending;  // less than one row group
  std::int64_t pending_rows = 0;

  void check(const arrow::Status& status) const {
    check_arrow(status, fmt::format("writing {}", path), ErrorKind::failure);
  }

  std::shared_ptr<arrow::RecordBatch> batch(const HeadRowsView& rows) const;
  void flush();
};

HeadRowsView view(const HeadRows& rows) {
  return {rows.bucket,  rows.example_id,     rows.position,
          rows.vectors, rows.sliding_window, rows.token_str};
}

std::shared_ptr<arrow::RecordBatch> HeadWriter::State::batch(const HeadRowsView& rows) const {
  const auto count = static_cast<std::int64_t>(rows.position.size());
  const auto values =
      std::make_shared<arrow::FloatArray>(count * options.head_dim, copy_of<float>(rows.vectors));
  const auto vectors = std::make_shared<arrow::FixedSizeListArray>(
      schema->field(3)->type(), count, std::static_pointer_cast<arrow::Array>(values));
  std::shared_ptr<arrow::Array> windows;
  if (rows.sliding_window) {
    const std::vector<std::int32_t> same(rows.position.size(), *rows.sliding_window);
    windows = int_array(same);
  } else {
    windows = arrow::MakeArrayOfNull(arrow::int32(), count).ValueOrDie();
  }
  arrow::ArrayVector columns = {int_array(rows.bucket), int_array(rows.example_id),
                                int_array(rows.position), vectors, windows};
  if (options.token_strings) {
    arrow::StringBuilder builder;
    check(builder.AppendValues({rows.token_str.begin(), rows.token_str.end()}));
    columns.push_back(builder.Finish().ValueOrDie());
  }
  return arrow::RecordBatch::Make(schema, count, columns);
}

// Row groups are cut by row count alone, so the bytes do not depend on how rows were appended.
void HeadWriter::State::flush() {
  if (pending_rows == 0) return;
  const auto table = arrow::Table::FromRecordBatches(schema, pending).ValueOrDie();
  check(writer->WriteTable(*table->CombineChunks().ValueOrDie(), options.row_group_size));
  pending.clear();
  pending_rows = 0;
}

HeadWriter::HeadWriter(const std::string& path, HeadWriterOptions options)
    : state_(std::make_unique<State>()) {
  QKSCOPE_ASSERT(options.head_dim > 0 && options.row_group_size > 0);
  state_->path = path;
  state_->temporary = path + ".partial";
  state_->options = std::move(options);
  state_->schema = head_schema(state_->options);
  state_->stream = take_arrow(arrow::io::FileOutputStream::Open(state_->temporary),
                              fmt::format("writing {}", path), ErrorKind::failure);
  const auto arrow_properties = parquet::ArrowWriterProperties::Builder().store_schema()->build();
  state_->writer =
      take_arrow(parquet::arrow::FileWriter::Open(
                     *state_->schema, arrow::default_memory_pool(), state_->stream,
                     writer_properties(state_->options.row_group_size), arrow_properties),
                 fmt::format("writing {}", path), ErrorKind::failure);
}

HeadWriter::~HeadWriter() {
  if (!state_->writer) return;
  state_->writer.reset();
  (void)state_->stream->Close();
  ::unlink(state_->temporary.c_str());
}

void HeadWriter::append(const HeadRowsView& rows) {
  const auto count = rows.position.size();
  QKSCOPE_ASSERT(rows.bucket.size() == count && rows.example_id.size() == count &&
                 rows.vectors.size() == count * static_cast<std::size_t>(state_->options.head_dim));
  QKSCOPE_ASSERT(!state_->options.token_strings || rows.token_str.size() == count);
  auto batch = state_->batch(rows);
  while (batch->num_rows() > 0) {
    const auto room = state_->options.row_group_size - state_->pending_rows;
    const auto taken = std::min(room, batch->num_rows());
    state_->pending.push_back(batch->Slice(0, taken));
    state_->pending_rows += taken;
    batch = batch->Slice(taken);
    if (state_->pending_rows == state_->options.row_group_size) state_->flush();
  }
}

void HeadWriter::finish() {
  state_->flush();
  state_->check(state_->writer->Close());
  state_->check(state_->stream->Close());
  if (std::rename(state_->temporary.c_str(), state_->path.c_str()) != 0)
    system_error("rename", state_->temporary, errno);
  state_->writer.reset();
}

void write_head_file(const std::string& path, const HeadRows& rows, const Metadata& metadata) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  HeadWriterOptions options;
  options.head_dim = rows.head_dim;
  options.token_strings = !rows.token_str.empty();
  options.metadata = metadata;
  HeadWriter writer(path, std::move(options));
  writer.append(view(rows));
  writer.finish();
}

}  // namespace qkscope
