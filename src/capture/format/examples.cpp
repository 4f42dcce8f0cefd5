#include "capture/format/examples.h"

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <fmt/format.h>
#include <parquet/arrow/writer.h>
#include <parquet/properties.h>

#include "base/io/arrow_error.h"
#include "base/io/output_file.h"

namespace qkscope {

// A full cache closes all its files. LRU eviction would not help: parts are read in turn, so the
// least recently used file is the one needed next.
std::shared_ptr<const SegmentReader> SegmentCache::open(std::size_t part, std::size_t segment) {
  const std::lock_guard lock(mutex_);
  if (const auto found = open_.find({part, segment}); found != open_.end()) return found->second;
  if (open_.size() >= most_) open_.clear();
  const auto& journal = parts_[part];
  return open_[{part, segment}] = std::make_shared<const SegmentReader>(
             journal.segment_path(journal.entries()[segment].segment),
             journal.manifest().groups.size());
}

OrderedExampleReader::OrderedExampleReader(SegmentCache& segments, std::size_t first_segment)
    : segments_(segments) {
  for (std::size_t part = 0; part < segments.parts().size(); ++part)
    add({.part = part, .segment = first_segment, .example = {}});
}

bool OrderedExampleReader::next() {
  if (order_.empty()) return false;
  auto cursor = order_.pop();
  segment_ = segments_.open(cursor.part, cursor.segment);
  number_ = cursor.number++;
  example_ = cursor.example;
  add(std::move(cursor));
  return true;
}

void OrderedExampleReader::add(Cursor cursor) {
  const auto segments = segments_.parts()[cursor.part].entries().size();
  for (; cursor.segment < segments; ++cursor.segment, cursor.number = 0, cursor.offset = 0) {
    const auto segment = segments_.open(cursor.part, cursor.segment);
    if (cursor.number == segment->examples()) continue;
    cursor.example = segment->read_example(cursor.offset);
    return order_.add(std::move(cursor));
  }
}

struct ExamplesWriter::State {
  std::string path;
  std::int64_t row_group_size = 0;
  std::shared_ptr<arrow::Schema> schema;
  std::shared_ptr<arrow::io::FileOutputStream> stream;
  std::unique_ptr<parquet::arrow::FileWriter> writer;
  arrow::Int32Builder ids;
  arrow::Int64Builder keys;
  arrow::StringBuilder sources;
  arrow::Int32Builder tokens;
  arrow::BooleanBuilder truncated;

  void check(const arrow::Status& status) const {
    check_arrow(status, fmt::format("writing {}", path), ErrorKind::failure);
  }
  template <typename T>
  T take(arrow::Result<T> result) const {
    return value_or_throw(std::move(result), fmt::format("writing {}", path), ErrorKind::failure);
  }

  void flush() {
    if (ids.length() == 0) return;
    const arrow::ArrayVector columns = {take(ids.Finish()), take(keys.Finish()),
                                        take(sources.Finish()), take(tokens.Finish()),
                                        take(truncated.Finish())};
    check(writer->WriteTable(*arrow::Table::Make(schema, columns), row_group_size));
  }
};

ExamplesWriter::ExamplesWriter(const std::string& path, std::int64_t row_group_size)
    : state_(std::make_unique<State>()) {
  state_->path = path;
  state_->row_group_size = row_group_size;
  state_->schema = arrow::schema({arrow::field("example_id", arrow::int32(), false),
                                  arrow::field("example_key", arrow::int64(), false),
                                  arrow::field("source_id", arrow::utf8(), false),
                                  arrow::field("tokens", arrow::int32(), false),
                                  arrow::field("truncated", arrow::boolean(), false)});
  state_->stream = state_->take(arrow::io::FileOutputStream::Open(path));
  const auto properties =
      parquet::WriterProperties::Builder().compression(parquet::Compression::ZSTD)->build();
  const auto arrow_properties = parquet::ArrowWriterProperties::Builder().store_schema()->build();
  state_->writer = state_->take(parquet::arrow::FileWriter::Open(
      *state_->schema, arrow::default_memory_pool(), state_->stream, properties, arrow_properties));
}

ExamplesWriter::~ExamplesWriter() = default;

void ExamplesWriter::append(const ExampleRecord& example) {
  auto& s = *state_;
  s.check(s.ids.Append(example_id_from_key(example.key)));
  s.check(s.keys.Append(example.key));
  s.check(s.sources.Append(example.source_id));
  s.check(s.tokens.Append(example.tokens));
  s.check(s.truncated.Append(example.truncated));
  if (s.ids.length() == s.row_group_size) s.flush();
}

void ExamplesWriter::finish() {
  state_->flush();
  state_->check(state_->writer->Close());
  state_->check(state_->stream->Close());
  sync_file(state_->path);
}

}  // namespace qkscope
