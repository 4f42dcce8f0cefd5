#include "capture/format/examples.h"

#include <algorithm>
#include <tuple>

#include <arrow/api.h>

#include "base/io/arrow_error.h"
#include "base/io/mapped_file.h"
#include "base/tables/parquet_stream.h"

namespace qkscope {

// A full cache closes all its files. LRU eviction would not help: parts are read in turn, so the
// least recently used file is the one needed next.
std::shared_ptr<const SegmentReader> SegmentCache::open_segment(std::size_t part,
                                                                std::size_t segment) {
  const std::lock_guard lock(mutex_);
  if (const auto found = open_.find({part, segment}); found != open_.end()) return found->second;
  if (open_.size() >= most_) open_.clear();
  const auto& journal = journals_[part];
  return open_[{part, segment}] = std::make_shared<const SegmentReader>(
             journal.segment_path(journal.entries()[segment].segment),
             journal.manifest().groups.size());
}

OrderedExampleReader::OrderedExampleReader(SegmentCache& segments, std::size_t first_segment)
    : segments_(segments) {
  for (std::size_t part = 0; part < segments.journals().size(); ++part)
    insert_cursor({.part = part, .segment = first_segment, .example = {}});
}

bool OrderedExampleReader::next() {
  if (order_.empty()) return false;
  auto cursor = std::move(order_.extract(order_.begin()).mapped());
  segment_ = segments_.open_segment(cursor.part, cursor.segment);
  number_ = cursor.number++;
  example_ = cursor.example;
  insert_cursor(std::move(cursor));
  return true;
}

void OrderedExampleReader::insert_cursor(SegmentCursor cursor) {
  const auto segments = segments_.journals()[cursor.part].entries().size();
  for (; cursor.segment < segments; ++cursor.segment, cursor.number = 0, cursor.offset = 0) {
    const auto segment = segments_.open_segment(cursor.part, cursor.segment);
    if (cursor.number == segment->example_count()) continue;
    cursor.example = segment->read_example(cursor.offset);
    const auto row = cursor.example.row;
    order_.emplace(row, std::move(cursor));
    return;
  }
}

void for_each_example(const std::vector<Journal>& parts,
                      const std::function<void(const ExampleRecord&)>& take) {
  for (const auto& part : parts)
    for (const auto& entry : part.entries())
      SegmentReader(part.segment_path(entry.segment), part.manifest().groups.size()).verify_index();
  constexpr std::size_t kMostOpen = 256;  // open segment files
  SegmentCache segments(parts, std::min(count_free_file_descriptors() / 2, kMostOpen));
  OrderedExampleReader examples(segments);
  while (examples.next()) take(examples.example());
}

struct ExamplesWriter::State {
  State(const std::string& path, std::int64_t rows)
      : row_group_size(rows), file(path, *schema, true) {}

  std::int64_t row_group_size;
  std::shared_ptr<arrow::Schema> schema =
      arrow::schema({arrow::field("example_id", arrow::int32(), false),
                     arrow::field("example_key", arrow::int64(), false),
                     arrow::field("source_id", arrow::utf8(), false),
                     arrow::field("tokens", arrow::int32(), false),
                     arrow::field("truncated", arrow::boolean(), false)});
  AtomicParquetFile file;
  std::tuple<arrow::Int32Builder, arrow::Int64Builder, arrow::StringBuilder, arrow::Int32Builder,
             arrow::BooleanBuilder>
      columns;  // in the order of `schema`

  static void check_write_status(const arrow::Status& status) {
    check_arrow_status(status, "writing the table of examples", ErrorKind::failure);
  }

  void write_row_group() {
    if (std::get<0>(columns).length() == 0) return;
    arrow::ArrayVector arrays;
    std::apply([&](auto&... c) { (check_write_status(c.Finish(&arrays.emplace_back())), ...); },
               columns);
    file.append(*arrow::Table::Make(schema, arrays));
  }
};

ExamplesWriter::ExamplesWriter(const std::string& path, std::int64_t row_group_size)
    : state_(std::make_unique<State>(path, row_group_size)) {}

ExamplesWriter::~ExamplesWriter() = default;

void ExamplesWriter::append(const ExampleRecord& example) {
  auto& s = *state_;
  auto& [ids, keys, sources, tokens, truncated] = s.columns;
  for (const auto& status : {ids.Append(example_id_from_key(example.key)), keys.Append(example.key),
                             sources.Append(example.source_id), tokens.Append(example.tokens),
                             truncated.Append(example.truncated)})
    s.check_write_status(status);
  if (ids.length() == s.row_group_size) s.write_row_group();
}

void ExamplesWriter::finish() {
  state_->write_row_group();
  state_->file.finish();
}

}  // namespace qkscope
