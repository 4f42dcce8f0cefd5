// The parts of a run that were made in shards, ready to become one.
#pragma once

#include <vector>

#include "capture/format/data_root.h"
#include "capture/format/journal.h"

namespace qkscope {

// What messages call it.
struct PartsKind {
  const char* name;     // "a capture", "statistics"
  const char* command;  // that makes the parts: "capture", "stats"
  const char* unit;     // "examples", "documents"
};

// Without any part it is bad input.
void expect_parts(const DataRoot& root, const PartsKind& kind);

// All shards in order, with one manifest for all. Parts that are missing, unfinished or of another
// run are bad input.
std::vector<Journal> complete_parts(const DataRoot& root, const PartsKind& kind);

}  // namespace qkscope
