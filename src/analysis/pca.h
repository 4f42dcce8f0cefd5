// Combined principal components of a head's queries and keys.
#pragma once

#include "analysis/moments.h"
#include "qkscope/analysis.h"

namespace qkscope {

PcaResult combined_pca(const CentredRows& queries, const CentredRows& keys,
                       const PooledMoments& pooled, const PcaOptions& options);

}  // namespace qkscope
