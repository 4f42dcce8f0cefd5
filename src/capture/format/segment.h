// A segment is a file with the captured rows of some consecutive examples of a run. It appears
// atomically. Blocks are written in the order of the forward pass; an index at the end locates
// them.
//
//   magic | blocks | index (groups, examples) | example table | trailer
//   block: int32 positions (rows), token strings if kept, float32 vectors (heads, rows, head_dim)
//
// The trailer holds checksums of the magic and blocks, the index and example table, and itself.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/io/checksum.h"
#include "base/io/output_file.h"
#include "qkscope/tensor.h"

namespace qkscope {

// Record of one example (a text or a chunk of a text) of a capture, without its rows.
struct ExampleRecord {
  std::int64_t row = 0;   // dataset row
  std::int64_t key = 0;   // 64-bit id that seeds the sampler
  std::string source_id;  // id in the dataset
  std::int32_t tokens = 0;
  bool truncated = false;
  std::uint64_t text = 0;  // checksum of the text; stored in parts only
};

// Id of an example in head files: the low 32 bits of its key.
constexpr std::int32_t example_id_from_key(std::int64_t key) {
  return static_cast<std::int32_t>(static_cast<std::uint64_t>(key));
}

// Index entry of a segment: location of the rows of one example and head group.
struct BlockIndexEntry {
  std::uint64_t offset = 0;
  std::int64_t example_row = 0;  // dataset row
  std::uint32_t rows = 0;
  std::uint32_t string_bytes = 0;
  std::int64_t example_key = 0;
};

class SegmentWriter {
 public:
  SegmentWriter(const std::string& path, std::size_t groups);

  // Adds an example and returns its number. The blocks of an example may follow in any order.
  std::size_t add_example(const ExampleRecord& example);
  // Adds the rows of an example and head group. Shapes: positions (rows), token_strings (rows) or
  // empty, vectors (rows, heads, head_dim).
  void add_block(std::size_t example, std::size_t group, std::span<const std::int32_t> positions,
                 std::span<const std::string_view> token_strings, ConstTensorView vectors);

  // Writes the index and trailer, then renames the file. Returns a checksum of the whole content.
  std::uint64_t commit();

  std::size_t example_count() const { return examples_.size(); }
  std::uint64_t content_bytes() const { return file_.bytes_written() + buffer_.size(); }

 private:
  void append_bytes(const void* data, std::size_t bytes);
  template <typename T>
  void append_value(const T& value);
  void append_string(std::string_view text);
  void write_buffer();
  std::uint64_t finish_checksum();

  OutputFile file_;
  std::size_t groups_;
  std::vector<ExampleRecord> examples_;
  std::vector<BlockIndexEntry> index_;  // (examples, groups); transposed on disk
  std::string buffer_;                  // bytes not yet written
  std::unique_ptr<Checksum> sum_ = std::make_unique<Checksum>();  // since finish_checksum()
};

// Captured positions and vectors of one example, for a range of heads.
struct CapturedRows {
  std::int64_t example_key = 0;
  std::vector<std::int32_t> positions;     // (rows)
  std::vector<std::string> token_strings;  // (rows) or empty
  std::vector<float> vectors;              // (heads, rows, head_dim)
};

// Consecutive heads of a head group.
struct HeadRange {
  std::size_t first = 0;
  std::size_t count = 1;
};

// The last bytes of a segment, in native byte order because segments are temporary files.
struct SegmentTrailer {
  std::uint64_t examples = 0;
  std::uint64_t groups = 0;
  std::uint64_t index_offset = 0;
  std::uint64_t table_offset = 0;
  std::uint64_t data_checksum = 0;   // checksum of magic and blocks
  std::uint64_t index_checksum = 0;  // checksum of index and example table
  std::uint64_t checksum = 0;        // checksum of the fields above
  char magic[8] = {'Q', 'K', 'S', 'E', 'G', '0', '2', '\n'};
};

class SegmentReader {
 public:
  // Reads the trailer. Throws a bad-input error unless the segment has `groups` head groups.
  SegmentReader(const std::string& path, std::size_t groups);

  std::size_t example_count() const { return trailer_.examples; }
  std::uint64_t file_bytes() const { return size_; }
  std::uint64_t checksum() const { return trailer_.checksum; }  // returned by commit()

  // Verify the checksum of index and example table, or all checksums. Damage is a bad-input error.
  void verify_index() const;
  void verify_checksums() const;

  std::vector<ExampleRecord> read_example_table() const;
  // Reads the example record at byte `offset` of the example table and advances `offset` past it.
  ExampleRecord read_example(std::uint64_t& offset) const;
  std::vector<BlockIndexEntry> read_block_index(std::size_t group) const;  // (examples)
  void read_block(const BlockIndexEntry& entry, const HeadRange& heads, std::int64_t head_dim,
                  CapturedRows& block) const;

 private:
  void read_bytes_at(std::uint64_t offset, void* into, std::size_t bytes) const;
  std::uint64_t range_checksum(std::uint64_t begin, std::uint64_t end) const;
  [[noreturn]] void throw_damaged_segment() const;

  std::string path_;
  FileDescriptor file_;
  std::uint64_t size_ = 0;
  SegmentTrailer trailer_;
};

}  // namespace qkscope
