#include <cstring>

#include "capture/segment.h"
#include "capture/segment_format.h"
#include "core/error.h"

namespace qkscope {
namespace {

void append(std::vector<std::byte>& buffer, const void* data, std::size_t bytes) {
  const auto* begin = static_cast<const std::byte*>(data);
  buffer.insert(buffer.end(), begin, begin + bytes);
}

template <typename T>
void append_value(std::vector<std::byte>& buffer, const T& value) {
  append(buffer, &value, sizeof value);
}

void append_string(std::vector<std::byte>& buffer, const std::string& text) {
  append_value(buffer, static_cast<std::uint32_t>(text.size()));
  append(buffer, text.data(), text.size());
}

}  // namespace

SegmentWriter::SegmentWriter(const std::string& path, std::size_t groups)
    : file_(path), groups_(groups) {
  file_.write(std::string_view(kSegmentMagic, sizeof kSegmentMagic));
}

std::size_t SegmentWriter::add_example(const ExampleRecord& example) {
  examples_.push_back(example);
  BlockEntry empty;
  empty.example_row = example.row;
  empty.example_id = static_cast<std::int32_t>(static_cast<std::uint64_t>(example.key));
  index_.insert(index_.end(), groups_, empty);
  return examples_.size() - 1;
}

void SegmentWriter::add_block(std::size_t example, std::size_t group,
                              std::span<const std::int32_t> positions,
                              std::span<const std::string> token_strings) {
  QKSCOPE_ASSERT(example < examples_.size() && group < groups_);
  QKSCOPE_ASSERT(token_strings.empty() || token_strings.size() == positions.size());
  buffer_.clear();
  append(buffer_, positions.data(), positions.size_bytes());
  for (const auto& text : token_strings) append_string(buffer_, text);
  auto& entry = index_[example * groups_ + group];
  entry.offset = file_.written();
  entry.rows = static_cast<std::uint32_t>(positions.size());
  entry.string_bytes = static_cast<std::uint32_t>(buffer_.size() - positions.size_bytes());
  file_.write(buffer_);
  rows_ += entry.rows;
}

void SegmentWriter::add_vectors(std::span<const float> vectors) {
  file_.write(std::as_bytes(vectors));
}

void SegmentWriter::commit() {
  SegmentTrailer trailer;
  trailer.examples = examples_.size();
  trailer.groups = groups_;
  trailer.index_offset = file_.written();
  for (std::size_t group = 0; group < groups_; ++group) {
    buffer_.clear();
    for (std::size_t example = 0; example < examples_.size(); ++example)
      append_value(buffer_, index_[example * groups_ + group]);
    file_.write(buffer_);
  }
  trailer.table_offset = file_.written();
  buffer_.clear();
  for (const auto& example : examples_) {
    append_value(buffer_, example.row);
    append_value(buffer_, example.key);
    append_value(buffer_, example.tokens);
    append_value(buffer_, static_cast<std::uint32_t>(example.truncated));
    append_string(buffer_, example.source_id);
  }
  append_value(buffer_, trailer);
  file_.write(buffer_);
  file_.commit();
}

}  // namespace qkscope
