// Plasticity without a model of the queries: if a fraction p of a bin's n queries prefers one key
// of a pair, the unbiased estimate is 4 n / (n - 1) p (1 - p).
#pragma once

#include <cstdint>

#include "analysis/methods/profile_replicates.h"
#include "qkscope/analysis.h"

namespace qkscope {

// Fills ap_free, free_pairs and, with replicates, profile_without.free of the result, whose profile
// and Gaussian replicates are known. All pairs of a bin are compared if its texts have at most
// options.free_keys keys. Otherwise a seeded sample of texts is compared, and the mean Gaussian
// plasticity of the same texts serves as control variate: ap_free = ap + mean(free - Gaussian).
void add_model_free_profile(const ComputedProfile& source, const PlasticityOptions& options,
                            PlasticityResult& result);

// 4 n / (n - 1) p (1 - p) with p = k / n: unbiased for 4 p (1 - p) of the population. `product`:
// k (n - k), or its sum over pairs of keys.
inline double unbiased_plasticity(std::int64_t product, std::int64_t n) {
  return 4 * static_cast<double>(product) / static_cast<double>(n * (n - 1));
}

}  // namespace qkscope
