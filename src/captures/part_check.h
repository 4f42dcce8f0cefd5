// Whether a part is what its journal says: nothing is assembled from one that is not.
#pragma once

#include <span>

#include "captures/journal.h"

namespace qkscope {

// Reads every segment: its checksums, whether it is the one that the journal means, whether the
// counts add up, and whether every example is there once, in order, and belongs to this shard.
// Anything else is bad input that names the segment.
void check_part(const Journal& journal);
// The same of several, segments of all of them beside each other.
void check_parts(std::span<const Journal> parts);

}  // namespace qkscope
