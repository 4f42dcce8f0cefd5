// Stub for builds without code for Hopper.
#include "engine/device/cuda/statistics/statistics_scores.h"

namespace qkscope::cuda {

bool compute_all_key_statistics_on_hopper(const ScoreArguments&, const AllKeysArguments&,
                                          cudaStream_t) {
  return false;
}

}  // namespace qkscope::cuda
