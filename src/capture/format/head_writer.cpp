#include "capture/format/head_writer.h"

#include <algorithm>
#include <filesystem>

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <fmt/format.h>
#include <parquet/arrow/writer.h>
#include <parquet/properties.h>
#include <unistd.h>

#include "base/core/error.h"
#include "base/io/arrow_error.h"
#include "base/io/folder.h"
#include "base/io/output_file.h"
#include "base/tables/arrow_columns.h"

namespace qkscope {
namespace {

// Rows passed to Parquet at a time and the uncompressed page size: these two alone determine where
// pages end. Parquet compresses a page as soon as the next one begins, so little work is left at
// the end of a file. Half this page size made files with head_dim 128 larger by 3 %, because the
// four byte planes of a page no longer fill one 128 KiB zstd block each.
constexpr std::size_t kBlockRows = 128;
constexpr std::int64_t kPageBytes = std::int64_t{512} << 10;

std::shared_ptr<arrow::Schema> head_schema(const HeadWriterOptions& options) {
  const auto element = arrow::field("element", arrow::float32());
  arrow::FieldVector fields = {
      arrow::field("bucket", arrow::int32()), arrow::field("example_id", arrow::int32()),
      arrow::field("position", arrow::int32()),
      arrow::field("vector", arrow::fixed_size_list(element, options.head_dim)),
      arrow::field("sliding_window", arrow::int32())};
  if (options.token_strings) fields.push_back(arrow::field("token_str", arrow::utf8()));
  if (options.example_keys) fields.push_back(arrow::field("example_key", arrow::int64()));
  const auto metadata = std::make_shared<arrow::KeyValueMetadata>();
  for (const auto& [key, value] : options.metadata) metadata->Append(key, value);
  return arrow::schema(fields, metadata);
}

// Vector components are rarely equal: BYTE_STREAM_SPLIT compresses better than a dictionary.
std::shared_ptr<parquet::WriterProperties> writer_properties(std::int64_t row_group_size) {
  return parquet::WriterProperties::Builder()
      .memory_pool(head_file_memory_pool())
      ->compression(parquet::Compression::ZSTD)
      ->disable_dictionary("vector.list.element")
      ->encoding("vector.list.element", parquet::Encoding::BYTE_STREAM_SPLIT)
      ->disable_statistics("vector.list.element")
      ->data_pagesize(kPageBytes)
      ->max_row_group_length(row_group_size)
      ->enable_page_checksum()
      ->build();
}

// Wraps values in an Arrow array without a copy. The vector must outlive the array.
std::shared_ptr<arrow::Array> to_arrow_int32_array(const std::vector<std::int32_t>& values) {
  return std::make_shared<arrow::Int32Array>(static_cast<std::int64_t>(values.size()),
                                             arrow::Buffer::Wrap(values));
}

template <typename T>
void append_slice(std::vector<T>& to, std::span<const T> from, std::size_t begin,
                  std::size_t count) {
  const auto part = from.subspan(begin, count);
  to.insert(to.end(), part.begin(), part.end());
}

void check_column_sizes(const HeadRows& rows, const std::string& path) {
  const auto count = rows.position.size();
  if (rows.head_dim < 1)
    reject("{}: cannot write: head_dim is {}; expected 1 or more", path, rows.head_dim);
  const auto expect = [&](const char* column, std::size_t found, std::size_t expected) {
    if (found != expected)
      reject("{}: cannot write: '{}' has {} values; expected {} for {} positions", path, column,
             found, expected, count);
  };
  expect("bucket", rows.bucket.size(), count);
  expect("example_id", rows.example_id.size(), count);
  expect("vector", rows.vectors.size(), count * static_cast<std::size_t>(rows.head_dim));
  if (!rows.token_str.empty()) expect("token_str", rows.token_str.size(), count);
  if (!rows.example_key.empty()) expect("example_key", rows.example_key.size(), count);
}

}  // namespace

struct HeadWriter::State {
  std::string path;
  std::string temporary;
  HeadWriterOptions options;
  std::shared_ptr<arrow::Schema> schema;
  std::shared_ptr<arrow::io::FileOutputStream> stream;
  std::unique_ptr<parquet::arrow::FileWriter> writer;
  HeadRows pending;               // buffered rows, fewer than a block
  std::int64_t in_row_group = 0;  // rows written to the open row group

  void check_write_status(const arrow::Status& status) const {
    check_arrow_status(status, fmt::format("writing {}", path), ErrorKind::failure);
  }
  template <typename T>
  T unwrap_result(arrow::Result<T> result) const {
    return value_or_throw(std::move(result), fmt::format("writing {}", path), ErrorKind::failure);
  }

  void write_pending_rows();
};

HeadRowsView as_head_rows_view(const HeadRows& rows) {
  return {rows.bucket,         rows.example_id, rows.position,   rows.vectors,
          rows.sliding_window, rows.token_str,  rows.example_key};
}

// Block boundaries depend only on the row count, not on how the rows are split into append() calls.
void HeadWriter::State::write_pending_rows() {
  const auto count = pending.size();
  if (count == 0) return;
  const auto values = std::make_shared<arrow::FloatArray>(count * options.head_dim,
                                                          arrow::Buffer::Wrap(pending.vectors));
  const auto vectors = std::make_shared<arrow::FixedSizeListArray>(
      schema->field(3)->type(), count, std::static_pointer_cast<arrow::Array>(values));
  const std::vector<std::int32_t> same(pending.position.size(), pending.sliding_window.value_or(0));
  const auto windows = pending.sliding_window
                           ? to_arrow_int32_array(same)
                           : unwrap_result(arrow::MakeArrayOfNull(arrow::int32(), count));
  arrow::ArrayVector columns = {to_arrow_int32_array(pending.bucket),
                                to_arrow_int32_array(pending.example_id),
                                to_arrow_int32_array(pending.position), vectors, windows};
  if (options.token_strings) {
    arrow::StringBuilder builder;
    check_write_status(builder.AppendValues(pending.token_str));
    columns.push_back(unwrap_result(builder.Finish()));
  }
  if (options.example_keys)
    columns.push_back(
        std::make_shared<arrow::Int64Array>(count, arrow::Buffer::Wrap(pending.example_key)));
  // Parquet keeps the compressed columns of a row group in memory until the row group is complete.
  check_write_status(writer->WriteRecordBatch(*arrow::RecordBatch::Make(schema, count, columns)));
  in_row_group = (in_row_group + count) % options.row_group_size;
  const auto clear = [](auto&... lists) { (lists.clear(), ...); };
  clear(pending.bucket, pending.example_id, pending.example_key, pending.position, pending.vectors,
        pending.token_str);
}

HeadWriter::HeadWriter(const std::string& path, HeadWriterOptions options)
    : state_(std::make_unique<State>()) {
  QKSCOPE_ASSERT(options.head_dim > 0 && options.row_group_size > 0);
  state_->path = path;
  state_->temporary = path + ".partial";
  state_->options = std::move(options);
  state_->schema = head_schema(state_->options);
  state_->stream = state_->unwrap_result(arrow::io::FileOutputStream::Open(state_->temporary));
  const auto arrow_properties = parquet::ArrowWriterProperties::Builder().store_schema()->build();
  state_->writer = state_->unwrap_result(parquet::arrow::FileWriter::Open(
      *state_->schema, head_file_memory_pool(), state_->stream,
      writer_properties(state_->options.row_group_size), arrow_properties));
}

HeadWriter::~HeadWriter() {
  if (!state_->writer) return;
  (void)state_->stream->Close();  // first, because the writer's destructor would finish the file
  state_->writer.reset();
  ::unlink(state_->temporary.c_str());
}

void HeadWriter::append(const HeadRowsView& rows) {
  const auto count = rows.position.size();
  QKSCOPE_ASSERT(rows.bucket.size() == count && rows.example_id.size() == count &&
                 rows.vectors.size() == count * static_cast<std::size_t>(state_->options.head_dim));
  QKSCOPE_ASSERT(!state_->options.token_strings || rows.token_str.size() == count);
  QKSCOPE_ASSERT(!state_->options.example_keys || rows.example_key.size() == count);
  auto& pending = state_->pending;
  pending.sliding_window = rows.sliding_window;
  const auto width = static_cast<std::size_t>(state_->options.head_dim);
  for (std::size_t begin = 0; begin < count;) {
    // A block never spans two row groups.
    const auto left = state_->options.row_group_size - state_->in_row_group;
    const auto block = std::min(kBlockRows, static_cast<std::size_t>(left));
    const auto taken = std::min(block - pending.position.size(), count - begin);
    append_slice(pending.bucket, rows.bucket, begin, taken);
    append_slice(pending.example_id, rows.example_id, begin, taken);
    append_slice(pending.position, rows.position, begin, taken);
    if (state_->options.example_keys)
      append_slice(pending.example_key, rows.example_key, begin, taken);
    append_slice(pending.vectors, rows.vectors, begin * width, taken * width);
    if (state_->options.token_strings)
      append_slice(pending.token_str, rows.token_str, begin, taken);
    begin += taken;
    if (pending.position.size() == block) state_->write_pending_rows();
  }
}

void HeadWriter::finish() {
  state_->write_pending_rows();
  state_->check_write_status(state_->writer->Close());
  state_->check_write_status(state_->stream->Close());
  rename_durably(state_->temporary, state_->path);
  state_->writer.reset();
}

void write_head_file(const std::string& path, const HeadRows& rows, const Metadata& metadata) {
  translate_exceptions([&] {
    check_column_sizes(rows, path);
    if (const auto folder = std::filesystem::path(path).parent_path(); !folder.empty())
      make_folders(folder.string());
    HeadWriter writer(path, {.head_dim = rows.head_dim,
                             .token_strings = !rows.token_str.empty(),
                             .example_keys = !rows.example_key.empty(),
                             .metadata = metadata});
    writer.append(as_head_rows_view(rows));
    writer.finish();
  });
}

}  // namespace qkscope
