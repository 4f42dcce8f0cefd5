#include "engine/device/cuda/statistics/statistics_scores.h"

namespace qkscope::cuda {

bool try_compute_near_key_statistics_on_hopper(const ScoreArguments&, const NearKeyOptions&,
                                               cudaStream_t) {
  return false;
}

bool try_compute_all_key_statistics_on_hopper(const ScoreArguments&, const AllKeysArguments&,
                                              cudaStream_t) {
  return false;
}

}  // namespace qkscope::cuda
