// Walks through the segments of all parts in the order of the dataset.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "captures/journal.h"
#include "captures/segment.h"

namespace qkscope {

// The blocks of one group, over the segments of one part; one segment is open at a time.
class BlockCursor {
 public:
  BlockCursor(const Journal& journal, std::size_t group);

  bool done() const { return !segment_; }
  std::int64_t example_row() const { return index_[at_].example_row; }
  // The rows of the group's `head`-th head; then the next example.
  void take(std::size_t head, HeadBlock& block);

 private:
  void open_next();

  const Journal* journal_;
  std::size_t group_;
  std::size_t next_segment_ = 0;
  std::optional<SegmentReader> segment_;
  std::vector<BlockEntry> index_;
  std::size_t at_ = 0;
};

// The example tables of one part.
class ExampleCursor {
 public:
  explicit ExampleCursor(const Journal& journal);

  bool done() const { return at_ == table_.size(); }
  std::int64_t example_row() const { return table_[at_].row; }
  ExampleRecord take();

 private:
  void open_next();

  const Journal* journal_;
  std::size_t next_segment_ = 0;
  std::vector<ExampleRecord> table_;
  std::size_t at_ = 0;
};

// The cursor whose example comes first in the dataset; null when all are done.
template <typename Cursor>
Cursor* first_in_dataset(std::vector<Cursor>& cursors) {
  Cursor* first = nullptr;
  for (auto& cursor : cursors)
    if (!cursor.done() && (first == nullptr || cursor.example_row() < first->example_row()))
      first = &cursor;
  return first;
}

}  // namespace qkscope
