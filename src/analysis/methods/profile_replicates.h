// The plasticity profile without each group of texts in turn: neither their keys nor their queries.
#pragma once

#include <cstdint>
#include <span>

#include "analysis/methods/kernels/pair_tables.h"
#include "analysis/methods/profile_bins.h"
#include "analysis/methods/text_groups.h"
#include "qkscope/analysis.h"

namespace qkscope {

// A head's profile, and what it was made from.
struct ProfileSource {
  const CentredRows& queries;
  const CentredRows& keys;
  const QueryModel& model;
  const SortedKeys& sorted;  // keys, by the profile's bins
  const QuerySide& side;     // of all queries
  const ProfileGrid& grid;
  std::span<const QueryBin> bins;
  const TextGroups& texts;
  const PairGroups& pairs;  // over the side's points
};

// The keys of a group leave the profile's sums. What the model of the other queries changes is
// found at a seeded sample of pairs (replicate_pairs) and added: with the model of all queries
// and with that of the others, at the same pairs, so that little but the difference is left.
ProfileReplicates profile_without_groups(const ProfileSource& source,
                                         const PlasticityOptions& options);

}  // namespace qkscope
