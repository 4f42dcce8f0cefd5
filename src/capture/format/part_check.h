// Whether a part is what its journal says: nothing is assembled from one that is not.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "capture/format/journal.h"
#include "qkscope/captures.h"

namespace qkscope {

// Reads every segment: its checksums, whether it is the one that the journal means, whether the
// counts add up, and whether every example is there once, in order, and belongs to this shard.
// Anything else is bad input that names the segment.
void check_part(const Journal& journal);
// The same of several, segments of all of them beside each other.
void check_parts(std::span<const Journal> parts);

// Of a segment, in the dataset.
struct RowRange {
  std::int64_t first = -1;  // -1 where there are no examples
  std::int64_t last = -1;
};

// How far a part that grows was checked. The journal outlives it.
class PartCheck {
 public:
  explicit PartCheck(const Journal& journal);

 private:
  friend void check_new_segments(std::span<PartCheck> parts);

  std::size_t begin();            // returns the number of new segments
  void check(std::size_t index);  // of a new segment, in any order
  void finish();                  // after all new ones: they follow each other

  const Journal* journal_;
  Shard shard_;
  std::size_t checked_ = 0;       // segments
  std::int64_t last_ = -1;        // row of the dataset in them
  std::vector<RowRange> ranges_;  // (new segments)
};

// What check_parts() does, of the segments that were not there at the last call.
void check_new_segments(std::span<PartCheck> parts);

}  // namespace qkscope
