// Combined principal components of a head's queries and keys.
#pragma once

#include "analysis/methods/moments.h"
#include "analysis/methods/text_groups.h"
#include "qkscope/analysis.h"

namespace qkscope {

// The whole decomposition, from the moments alone: the accuracy of the discriminant, which counts
// rows, is NaN.
PcaResult pca_from_moments(const Moments& queries, const Moments& keys, const PooledMoments& pooled,
                           const PcaOptions& options);
// With the rows at hand. With groups of texts, rows are counted for each of them.
PcaResult combined_pca(const CentredRows& queries, const CentredRows& keys,
                       const PooledMoments& pooled, const PcaOptions& options,
                       const TextGroups* texts = nullptr);

// The first component alone, near a known direction: what replicates of a head need. Numbers that
// take more than the moments or the first component are NaN.
PcaResult first_component(const Moments& queries, const Moments& keys, const PooledMoments& pooled,
                          std::span<const double> near, const PcaOptions& options);

// The components of the rows of one kind alone. Each points where its largest coordinate is
// positive.
std::vector<SideComponent> separate_pca(const Moments& rows, int components);

}  // namespace qkscope
