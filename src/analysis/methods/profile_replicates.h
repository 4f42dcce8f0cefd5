// Jackknife replicates of the plasticity profile, which leave out the keys and queries of one group
// of texts at a time, and the profile without a model of the queries: if a fraction p of a bin's n
// queries prefers one key of a pair, the unbiased estimate is 4 n / (n - 1) p (1 - p).
#pragma once

#include <span>

#include "analysis/methods/kernels/eligible_keys.h"
#include "analysis/methods/moments.h"
#include "analysis/methods/profile_models.h"
#include "qkscope/analysis.h"

namespace qkscope {

// A Gaussian plasticity profile with the queries and keys from which it was computed.
struct ComputedProfile {
  const SortedQueries& queries;
  const QueryModelPerBin& model;  // its slopes shift queries to the centre of their bin
  std::span<const QueryBin> bins;
  KeyTile keys;  // all
  const SortedKeys& sorted;
  const EligibleKeys& eligible;  // at the model's points
  const TextGroups& texts;
  const PlasticityProfileTables& tables;  // over the model's points
};

// Leaving out the keys of a group is exact. Leaving out its queries changes the query model, and
// the effect on the profile is computed to first order: the gradient of the mean plasticity with
// respect to the model's means and variances, times the change of these parameters. The gradient is
// estimated from a seeded sample of pairs (options.replicate_pairs per point).
ProfileReplicates compute_profile_replicates(const ComputedProfile& source,
                                             const PlasticityOptions& options);

// Fills ap_free, free_pairs and, with replicates, profile_without.free of the result, whose profile
// and Gaussian replicates are known. All pairs of a bin are compared if its texts have at most
// options.free_keys keys. Otherwise a seeded sample of texts is compared, and the mean Gaussian
// plasticity of the same texts serves as control variate: ap_free = ap + mean(free - Gaussian).
void add_model_free_profile(const ComputedProfile& source, const PlasticityOptions& options,
                            PlasticityResult& result);

// Returns 4 n / (n - 1) p (1 - p) with p = k / n, an unbiased estimate of 4 p (1 - p) in the
// population. `product`: k (n - k), or its sum over pairs of keys.
inline double unbiased_plasticity(std::int64_t product, std::int64_t n) {
  return 4 * static_cast<double>(product) / static_cast<double>(n * (n - 1));
}

}  // namespace qkscope
