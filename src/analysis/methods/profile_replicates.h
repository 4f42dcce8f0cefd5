// Jackknife replicates of the plasticity profile: the keys and queries of one group of texts are
// left out at a time.
#pragma once

#include <span>

#include "analysis/methods/kernels/eligible_keys.h"
#include "analysis/methods/moments.h"
#include "analysis/methods/profile_models.h"
#include "qkscope/analysis.h"

namespace qkscope {

// A Gaussian plasticity profile with the queries and keys that it was computed from.
struct ComputedProfile {
  const SortedQueries& queries;
  const ProfileQueryModel& model;  // its slopes shift queries to the centre of their bin
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

}  // namespace qkscope
