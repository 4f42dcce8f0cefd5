// Means of the plasticity profile over all queries, over fifths and tenths of the context, and over
// length bins.
#pragma once

#include "qkscope/analysis.h"

namespace qkscope {

struct ProfileMeans {
  double overall = 0;  // mean over bins weighted by queries
  double first20 = 0;  // mean of the bins in the first fifth of [low, high)
  double last20 = 0;   // mean of the bins in the last fifth
  double drop = 0;     // first20 - last20
};

// Returns the means of the Gaussian or the model-free profile with one group of texts left out.
// Ignores bins whose value is NaN.
enum class ProfileKind { gaussian, free };
ProfileMeans profile_means_without_group(const PlasticityResult& result, ProfileKind kind,
                                         int group);

// Fills profile_low, profile_high, profile_bin_means, the head's means, the standard errors of all
// bins and the `gaussian` flag from the profile and its replicates.
void summarise_profile(const PlasticityOptions& options, PlasticityResult& result);

}  // namespace qkscope
