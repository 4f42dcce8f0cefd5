// Means of the plasticity profile: over all queries, fifths and tenths of the context, length bins.
#pragma once

#include "qkscope/analysis.h"

namespace qkscope {

struct ProfileMeans {
  double overall = kNoNumber;  // mean over bins weighted by queries
  double first20 = kNoNumber;  // mean of the bins in the first fifth of [low, high)
  double last20 = kNoNumber;   // mean of the bins in the last fifth
  double drop = kNoNumber;     // first20 - last20
};
void set_profile_means(const ProfileMeans& gaussian, const ProfileMeans& free,
                       PlasticityResult& result);

// Returns the means of the Gaussian or the model-free profile with one group of texts left out.
// Ignores bins whose value is NaN.
enum class ProfileKind { gaussian, free };
ProfileMeans profile_means_without_group(const PlasticityResult& result, ProfileKind kind,
                                         int group);

// Computes profile_low, profile_high, profile_bin_means, the head's means, the standard errors of
// all bins and the `gaussian` flag from the profile and its replicates.
void summarize_profile(const PlasticityOptions& options, PlasticityResult& result);

}  // namespace qkscope
