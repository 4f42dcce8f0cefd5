// What the profiles of all heads of a capture share.
#pragma once

#include <vector>

#include "qkscope/analysis.h"

namespace qkscope {

// The options of the plasticity with the bins and the context decided by the first head that can be
// read, so that the profiles of all heads have the same bins.
PlasticityOptions shared_profile(const AnalyzeOptions& options,
                                 const std::vector<HeadReport>& heads);

}  // namespace qkscope
