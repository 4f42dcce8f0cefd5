// A segment: the captured rows of some consecutive examples of a run, in one file that is whole or
// not there. Blocks are written as the forward pass makes them; an index at the end finds them.
//
//   magic | blocks | index (groups, examples) | example table | trailer
//   block: int32 positions (rows), token strings if kept, float32 vectors (heads, rows, head_dim)
//
// The trailer has a checksum of what is before the index, one of index and table, and one of
// itself.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/io/checksum.h"
#include "base/io/output_file.h"
#include "capture/format/examples.h"
#include "qkscope/tensor.h"

namespace qkscope {

// Where the rows of one example and group lie.
struct BlockEntry {
  std::uint64_t offset = 0;
  std::int64_t example_row = 0;  // in the dataset
  std::uint32_t rows = 0;
  std::uint32_t string_bytes = 0;
  std::int64_t example_key = 0;
};

class SegmentWriter {
 public:
  SegmentWriter(const std::string& path, std::size_t groups);

  // Announces the next example; its blocks may come in any order after this. Returns its number.
  std::size_t add_example(const ExampleRecord& example);
  // A block: positions (rows), their token strings (rows) where they are kept, and the vectors of
  // the group's heads (rows, heads, head_dim).
  void add_block(std::size_t example, std::size_t group, std::span<const std::int32_t> positions,
                 std::span<const std::string_view> token_strings, ConstTensorView vectors);

  // Writes the index and makes the file appear. Returns the checksum of the trailer, which stands
  // for the whole content.
  std::uint64_t commit();

  std::size_t examples() const { return examples_.size(); }
  std::uint64_t bytes() const { return file_.written() + filled_; }
  std::int64_t rows() const { return rows_; }  // of all heads of a group counted once

 private:
  void append(const void* data, std::size_t bytes);
  template <typename T>
  void append_value(const T& value);
  void append_string(std::string_view text);
  void write_buffer();
  std::uint64_t take_checksum();

  OutputFile file_;
  std::size_t groups_;
  std::vector<ExampleRecord> examples_;
  std::vector<BlockEntry> index_;  // (examples, groups); transposed on disk
  std::vector<std::byte> buffer_;  // what goes to the file in one piece
  std::size_t filled_ = 0;         // bytes of the buffer
  std::int64_t rows_ = 0;
  std::unique_ptr<Checksum> sum_ = std::make_unique<Checksum>();  // of what went to the file
};

// One block of some heads, as it is read back.
struct HeadBlock {
  std::int64_t example_key = 0;
  std::vector<std::int32_t> positions;     // (rows)
  std::vector<std::string> token_strings;  // (rows) or empty
  std::vector<float> vectors;              // (heads, rows, head_dim)
};

// Heads of a group that follow each other.
struct HeadRange {
  std::size_t first = 0;
  std::size_t count = 1;
};

class SegmentReader {
 public:
  // Refuses a file that is not a whole segment of this many groups. Looks at the trailer alone.
  SegmentReader(const std::string& path, std::size_t groups);
  ~SegmentReader();
  SegmentReader(SegmentReader&& other) noexcept;
  SegmentReader& operator=(SegmentReader&&) = delete;
  SegmentReader(const SegmentReader&) = delete;
  SegmentReader& operator=(const SegmentReader&) = delete;

  std::size_t examples() const { return examples_; }
  std::uint64_t bytes() const { return size_; }
  std::uint64_t checksum() const { return checksum_; }  // as commit() returned it

  // Refuse damage: in the index and the table, and everywhere.
  void check_index() const;
  void check_all() const;

  std::vector<ExampleRecord> example_table() const;
  // The example whose record begins so many bytes into the table; then `offset` is the next one's.
  ExampleRecord example(std::uint64_t& offset) const;
  std::vector<BlockEntry> index(std::size_t group) const;  // (examples)
  // The rows of some of the group's heads.
  void read(const BlockEntry& entry, const HeadRange& heads, std::int64_t head_dim,
            HeadBlock& block) const;

 private:
  // Opens the file; from here on the destructor closes it, whatever is found in it.
  explicit SegmentReader(const std::string& path);
  void read_at(std::uint64_t offset, void* into, std::size_t bytes) const;
  std::uint64_t checksum_of_bytes(std::uint64_t begin, std::uint64_t end) const;
  [[noreturn]] void damaged() const;

  std::string path_;
  int file_ = -1;
  std::uint64_t size_ = 0;
  std::size_t groups_ = 0;
  std::size_t examples_ = 0;
  std::uint64_t index_offset_ = 0;
  std::uint64_t table_offset_ = 0;
  std::uint64_t checksum_ = 0;
  std::uint64_t data_checksum_ = 0;
  std::uint64_t index_checksum_ = 0;
};

}  // namespace qkscope
