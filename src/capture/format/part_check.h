// Verifies the segments of a part against its journal before the part is assembled.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "capture/format/journal.h"
#include "qkscope/captures.h"

namespace qkscope {

// Reads every segment and checks its checksums, its identity and counts against the journal, and
// that every example appears once, in order, and belongs to this shard. Throws bad input that names
// the damaged segment.
void check_part(const Journal& journal);
// Checks several parts, with segments in parallel.
void check_parts(std::span<const Journal> parts);

// First and last dataset row of a segment.
struct RowRange {
  std::int64_t first = -1;  // -1 for a segment without examples
  std::int64_t last = -1;
};

// Remembers how many segments of a growing part are checked. The journal must outlive this object.
class PartCheck {
 public:
  explicit PartCheck(const Journal& journal);

 private:
  friend void check_new_segments(std::span<PartCheck> parts);

  std::size_t begin();            // returns the number of new segments
  void check(std::size_t index);  // checks one new segment; thread-safe for different indices
  void finish();                  // checks that the new segments continue the checked ones

  const Journal* journal_;
  Shard shard_;
  std::size_t checked_ = 0;       // segments
  std::int64_t last_ = -1;        // last dataset row of the checked segments
  std::vector<RowRange> ranges_;  // (new segments)
};

// Checks the segments that were added since the last call, as check_parts() does.
void check_new_segments(std::span<PartCheck> parts);

}  // namespace qkscope
