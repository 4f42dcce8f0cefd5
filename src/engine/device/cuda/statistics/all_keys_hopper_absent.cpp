// Stub for builds without code for Hopper.
#include "base/core/error.h"
#include "engine/device/cuda/statistics/statistics_scores.h"

namespace qkscope::cuda {

bool has_hopper_all_keys_kernel(const ScoreArguments&) {
  return false;
}

void compute_all_key_statistics_on_hopper(const ScoreArguments&, const AllKeysArguments&,
                                          cudaStream_t) {
  QKSCOPE_ASSERT(false);
}

}  // namespace qkscope::cuda
