// The kernels behind score_rows(). Arguments are checked, count and keys > 0.
#pragma once

#include "device/cuda/score_rows.h"

namespace qkscope::cuda {

void launch_scores(const ScoreRowsArguments& arguments, cudaStream_t stream);
void launch_patterns(const ScoreRowsArguments& arguments, cudaStream_t stream);

}  // namespace qkscope::cuda
