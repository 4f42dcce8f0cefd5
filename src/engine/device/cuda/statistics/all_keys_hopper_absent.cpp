// Stub of all_keys_hopper.cu for builds without code for Hopper GPUs.
#include "engine/device/cuda/statistics/statistics_scores.h"

namespace qkscope::cuda {

bool compute_all_key_statistics_on_hopper(const ScoreArguments&, const AllKeysArguments&,
                                          cudaStream_t) {
  return false;
}

}  // namespace qkscope::cuda
