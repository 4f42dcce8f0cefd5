#include <cstring>

#include "captures/segment.h"
#include "captures/segment_format.h"
#include "core/error.h"

namespace qkscope {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

}  // namespace

SegmentWriter::SegmentWriter(const std::string& path, std::size_t groups)
    : file_(path), groups_(groups), buffer_(kBufferBytes) {
  append(kSegmentMagic, sizeof kSegmentMagic);
}

void SegmentWriter::append(const void* data, std::size_t bytes) {
  if (bytes > buffer_.size() - filled_) write_buffer();
  if (bytes > buffer_.size()) return file_.write({static_cast<const std::byte*>(data), bytes});
  if (bytes > 0) std::memcpy(buffer_.data() + filled_, data, bytes);
  filled_ += bytes;
}

template <typename T>
void SegmentWriter::append_value(const T& value) {
  append(&value, sizeof value);
}

void SegmentWriter::append_string(std::string_view text) {
  append_value(static_cast<std::uint32_t>(text.size()));
  append(text.data(), text.size());
}

void SegmentWriter::write_buffer() {
  file_.write(std::span(buffer_).first(filled_));
  filled_ = 0;
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
                              std::span<const std::string_view> token_strings,
                              ConstTensorView vectors) {
  QKSCOPE_ASSERT(example < examples_.size() && group < groups_);
  QKSCOPE_ASSERT(token_strings.empty() || token_strings.size() == positions.size());
  QKSCOPE_ASSERT(vectors.dim(0) == static_cast<std::int64_t>(positions.size()));
  auto& entry = index_[example * groups_ + group];
  entry.offset = bytes();
  entry.rows = static_cast<std::uint32_t>(positions.size());
  append(positions.data(), positions.size_bytes());
  const auto strings_begin = bytes();
  for (const auto text : token_strings) append_string(text);
  entry.string_bytes = static_cast<std::uint32_t>(bytes() - strings_begin);
  const auto width = static_cast<std::size_t>(vectors.dim(2)) * sizeof(float);
  for (std::int64_t head = 0; head < vectors.dim(1); ++head) {
    const float* of_head = vectors.data<float>() + head * vectors.stride(1);
    for (std::int64_t row = 0; row < vectors.dim(0); ++row)
      append(of_head + row * vectors.stride(0), width);
  }
  rows_ += entry.rows;
}

void SegmentWriter::commit() {
  SegmentTrailer trailer;
  trailer.examples = examples_.size();
  trailer.groups = groups_;
  trailer.index_offset = bytes();
  for (std::size_t group = 0; group < groups_; ++group)
    for (std::size_t example = 0; example < examples_.size(); ++example)
      append_value(index_[example * groups_ + group]);
  trailer.table_offset = bytes();
  for (const auto& example : examples_) {
    append_value(example.row);
    append_value(example.key);
    append_value(example.tokens);
    append_value(static_cast<std::uint32_t>(example.truncated));
    append_string(example.source_id);
  }
  append_value(trailer);
  write_buffer();
  file_.commit();
}

}  // namespace qkscope
