#include "capture/format/segment.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/core/error.h"
#include "base/io/byte_reader.h"

namespace qkscope {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;
constexpr std::size_t kCheckedBytes = std::size_t{64} << 10;  // per read when verifying checksums

constexpr auto kSegmentMagic = std::to_array(SegmentTrailer{}.magic);

std::uint64_t trailer_checksum(const SegmentTrailer& trailer) {
  return checksum_of({reinterpret_cast<const char*>(&trailer), offsetof(SegmentTrailer, checksum)});
}

// Size in bytes of an example record without its source id, which has variable length.
constexpr std::uint64_t kFixedRecordBytes = 2 * sizeof(std::int64_t) + sizeof(std::uint64_t) +
                                            sizeof(std::int32_t) + 2 * sizeof(std::uint32_t);

}  // namespace

SegmentWriter::SegmentWriter(const std::string& path, std::size_t groups)
    : file_(path), groups_(groups) {
  append_bytes(kSegmentMagic.data(), sizeof kSegmentMagic);
}

void SegmentWriter::append_bytes(const void* data, std::size_t bytes) {
  buffer_.append(static_cast<const char*>(data), bytes);
  if (buffer_.size() >= kBufferBytes) write_buffer();
}

template <typename T>
void SegmentWriter::append_value(const T& value) {
  append_bytes(&value, sizeof value);
}

void SegmentWriter::append_string(std::string_view text) {
  append_value(static_cast<std::uint32_t>(text.size()));
  append_bytes(text.data(), text.size());
}

void SegmentWriter::write_buffer() {
  sum_->add(buffer_);
  file_.write(buffer_);
  buffer_.clear();
}

std::size_t SegmentWriter::add_example(const ExampleRecord& example) {
  examples_.push_back(example);
  BlockIndexEntry empty;
  empty.example_row = example.row;
  empty.example_key = example.key;
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
  entry.offset = content_bytes();
  entry.rows = static_cast<std::uint32_t>(positions.size());
  append_bytes(positions.data(), positions.size_bytes());
  const auto strings_begin = content_bytes();
  for (const auto text : token_strings) append_string(text);
  entry.string_bytes = static_cast<std::uint32_t>(content_bytes() - strings_begin);
  const auto width = static_cast<std::size_t>(vectors.dim(2)) * sizeof(float);
  for (std::int64_t head = 0; head < vectors.dim(1); ++head) {
    const float* of_head = vectors.data<float>() + head * vectors.stride(1);
    for (std::int64_t row = 0; row < vectors.dim(0); ++row)
      append_bytes(of_head + row * vectors.stride(0), width);
  }
}

std::uint64_t SegmentWriter::commit() {
  SegmentTrailer trailer;
  trailer.examples = examples_.size();
  trailer.groups = groups_;
  trailer.index_offset = content_bytes();
  trailer.data_checksum = finish_checksum();
  for (std::size_t group = 0; group < groups_; ++group)
    for (std::size_t example = 0; example < examples_.size(); ++example)
      append_value(index_[example * groups_ + group]);
  trailer.table_offset = content_bytes();
  for (const auto& example : examples_) {
    append_value(example.row);
    append_value(example.key);
    append_value(example.text);
    append_value(example.tokens);
    append_value(static_cast<std::uint32_t>(example.truncated));
    append_string(example.source_id);
  }
  trailer.index_checksum = finish_checksum();
  trailer.checksum = trailer_checksum(trailer);
  append_value(trailer);
  write_buffer();
  file_.commit();
  return trailer.checksum;
}

// Returns the checksum of the bytes written since the last finish_checksum().
std::uint64_t SegmentWriter::finish_checksum() {
  write_buffer();
  const auto sum = sum_->value();
  sum_ = std::make_unique<Checksum>();
  return sum;
}

SegmentReader::SegmentReader(const std::string& path, std::size_t groups)
    : path_(path), file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW)) {
  if (!file_.is_open()) throw_system_error("read", path, errno);
  struct stat status = {};
  if (::fstat(file_.fd(), &status) != 0) throw_system_error("read", path, errno);
  size_ = static_cast<std::uint64_t>(status.st_size);
  if (size_ < sizeof kSegmentMagic + sizeof trailer_) throw_damaged_segment();
  read_bytes_at(size_ - sizeof trailer_, &trailer_, sizeof trailer_);
  if (std::to_array(trailer_.magic) != kSegmentMagic ||
      trailer_.checksum != trailer_checksum(trailer_) || trailer_.groups != groups ||
      trailer_.examples > size_ / kFixedRecordBytes || trailer_.index_offset > size_ ||
      trailer_.table_offset > size_ - sizeof trailer_ ||
      trailer_.index_offset + trailer_.examples * groups * sizeof(BlockIndexEntry) !=
          trailer_.table_offset)
    throw_damaged_segment();
}

void SegmentReader::verify_index() const {
  if (range_checksum(trailer_.index_offset, size_ - sizeof(SegmentTrailer)) !=
      trailer_.index_checksum)
    throw_damaged_segment();
}

void SegmentReader::verify_checksums() const {
  verify_index();
  if (range_checksum(0, trailer_.index_offset) != trailer_.data_checksum) throw_damaged_segment();
}

std::uint64_t SegmentReader::range_checksum(std::uint64_t begin, std::uint64_t end) const {
  Checksum sum;
  std::vector<std::byte> buffer(std::min<std::uint64_t>(kCheckedBytes, end - begin));
  while (begin < end) {
    const auto piece = std::span(buffer).first(std::min<std::uint64_t>(buffer.size(), end - begin));
    read_bytes_at(begin, piece.data(), piece.size());
    sum.add(piece);
    begin += piece.size();
  }
  return sum.value();
}

void SegmentReader::throw_damaged_segment() const {
  reject("{}: damaged: not a whole part of this capture; start again with --overwrite", path_);
}

void SegmentReader::read_bytes_at(std::uint64_t offset, void* into, std::size_t bytes) const {
  if (offset > size_ || bytes > size_ - offset) throw_damaged_segment();
  auto* destination = static_cast<char*>(into);
  while (bytes > 0) {
    const auto count = ::pread(file_.fd(), destination, bytes, static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_system_error("read", path_, errno);
    if (count == 0) throw_damaged_segment();
    destination += count;
    offset += static_cast<std::uint64_t>(count);
    bytes -= static_cast<std::size_t>(count);
  }
}

std::vector<ExampleRecord> SegmentReader::read_example_table() const {
  std::vector<ExampleRecord> table(trailer_.examples);
  std::uint64_t offset = 0;
  for (auto& record : table) record = read_example(offset);
  return table;
}

ExampleRecord SegmentReader::read_example(std::uint64_t& offset) const {
  const auto end = size_ - sizeof(SegmentTrailer);  // end of the example table
  const auto read_next = [&](std::uint64_t bytes) {
    const auto at = trailer_.table_offset + offset;
    if (bytes > end - at) throw_damaged_segment();
    std::string text(bytes, '\0');
    read_bytes_at(at, text.data(), text.size());
    offset += bytes;
    return text;
  };
  const auto fixed = read_next(kFixedRecordBytes);
  ByteReader fields(fixed, [&](const TruncatedRead&) { throw_damaged_segment(); });
  ExampleRecord example;
  example.row = fields.read<std::int64_t>();
  example.key = fields.read<std::int64_t>();
  example.text = fields.read<std::uint64_t>();
  example.tokens = fields.read<std::int32_t>();
  example.truncated = fields.read<std::uint32_t>() != 0;
  example.source_id = read_next(fields.read<std::uint32_t>());
  return example;
}

std::vector<BlockIndexEntry> SegmentReader::read_block_index(std::size_t group) const {
  QKSCOPE_ASSERT(group < trailer_.groups);
  std::vector<BlockIndexEntry> entries(trailer_.examples);
  const auto bytes = entries.size() * sizeof(BlockIndexEntry);
  read_bytes_at(trailer_.index_offset + group * bytes, entries.data(), bytes);
  return entries;
}

void SegmentReader::read_block(const BlockIndexEntry& entry, const HeadRange& heads,
                               std::int64_t head_dim, CapturedRows& block) const {
  const std::size_t rows = entry.rows;
  const auto width = static_cast<std::size_t>(head_dim);
  if (rows * (sizeof(std::int32_t) + heads.count * width * sizeof(float)) > size_)
    throw_damaged_segment();
  block.example_key = entry.example_key;
  block.positions.resize(rows);
  block.vectors.resize(heads.count * rows * width);
  block.token_strings.clear();
  auto offset = entry.offset;
  read_bytes_at(offset, block.positions.data(), rows * sizeof(std::int32_t));
  offset += rows * sizeof(std::int32_t);
  if (entry.string_bytes > 0) {
    std::string bytes(entry.string_bytes, '\0');
    read_bytes_at(offset, bytes.data(), bytes.size());
    ByteReader strings(bytes, [&](const TruncatedRead&) { throw_damaged_segment(); });
    block.token_strings.resize(rows);
    for (auto& text : block.token_strings) text = strings.read_text(strings.read<std::uint32_t>());
    offset += entry.string_bytes;
  }
  const auto of_head = rows * width * sizeof(float);
  read_bytes_at(offset + heads.first * of_head, block.vectors.data(), heads.count * of_head);
}

}  // namespace qkscope
