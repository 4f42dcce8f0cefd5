// Jackknife replicates of the plasticity profile: without the keys and the queries of each group of
// texts in turn.
#pragma once

#include <cstdint>
#include <span>

#include "analysis/methods/kernels/eligible_keys.h"
#include "analysis/methods/profile_models.h"
#include "analysis/methods/text_groups.h"
#include "qkscope/analysis.h"

namespace qkscope {

struct ProfileSource {
  const SortedQueries& queries;
  const ProfileModel& model;
  std::span<const QueryBin> bins;
  KeyTile keys;  // all
  const SortedKeys& sorted;
  const EligibleKeys& eligible;  // at the model's points
  const TextGroups& texts;
  const PairGroups& pairs;  // over the model's points
};

// Keys of a group leave the profile's sums exactly. What the model without the group's queries
// changes is taken to first order: the gradient of the mean plasticity by the model's means and
// variances, from a seeded sample of pairs (options.replicate_pairs per point), times their change.
ProfileReplicates profile_without_groups(const ProfileSource& source,
                                         const PlasticityOptions& options);

}  // namespace qkscope
