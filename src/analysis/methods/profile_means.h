// Means of the plasticity profile: of all queries, of fifths and tenths, of lengths.
#pragma once

#include <span>

#include "qkscope/analysis.h"

namespace qkscope {

struct ProfileMeans {
  double overall = 0;  // over queries
  double first20 = 0;  // over the bins of the first fifth of [low, high)
  double last20 = 0;   // and of the last
  double drop = 0;     // first20 - last20
};

// Means of the Gaussian or of the model-free profile without the texts of one group. Points without
// a value do not count.
enum class ProfileKind { gaussian, free };
ProfileMeans profile_means_without(const PlasticityResult& result, ProfileKind kind, int group);

// Fills profile_low and _high, profile_bin_means, the means of the head and the errors of its bins
// from its profile.
void summarise_profile(const PlasticityOptions& options, PlasticityResult& result);

}  // namespace qkscope
