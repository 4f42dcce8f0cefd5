// What sampling rows loses: the numbers of a capture beside those over every token, head by head.
#pragma once

#include <vector>

#include "qkscope/experimental/study.h"
#include "study/sweep/sweep_folder.h"

namespace qkscope {

// sampling.csv: one row for each run that has both and each quantity. No rows where none has.
Table sampling_table(const SweepFolder& folder, const std::vector<RunEntry>& runs);

}  // namespace qkscope
