// All-key pass with Hopper's wgmma instructions, for 16-bit types and heads of 64 and 128.
#pragma once

#include <cuda_runtime.h>

#include "engine/device/cuda/statistics/statistics_scores.h"

namespace qkscope::cuda {

struct AllKeysOptions;

// Returns whether the arguments qualify and this build contains the kernel.
bool all_keys_fit_hopper(const ScoreArguments& arguments);
void all_keys_on_hopper(const ScoreArguments& arguments, const AllKeysOptions& options,
                        cudaStream_t stream);

}  // namespace qkscope::cuda
