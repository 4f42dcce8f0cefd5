// Stub for builds without code for Hopper.
#include "base/core/error.h"
#include "engine/device/cuda/statistics/statistics_scores.h"

namespace qkscope::cuda {

bool all_keys_fit_hopper(const ScoreArguments&) {
  return false;
}

void compute_all_key_statistics_on_hopper(const ScoreArguments&, const AllKeysArguments&,
                                          cudaStream_t) {
  QKSCOPE_ASSERT(false);
}

}  // namespace qkscope::cuda
