// Turns the complete parts of a run into its final files and publishes them. The bytes depend only
// on the rows: not on segments, shards or how often the run was interrupted.
#pragma once

#include <vector>

#include "captures/data_root.h"
#include "captures/journal.h"

namespace qkscope {

// `parts`: all shards in order, or the one part of a run without shards. The files are written to
// a folder of their own, moved into the data root, the state file last; then the parts are removed.
void assemble(const DataRoot& root, const std::vector<Journal>& parts, bool quiet);

}  // namespace qkscope
