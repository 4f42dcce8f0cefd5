// Combined principal components of a head's queries and keys.
#pragma once

#include "analysis/methods/moments.h"
#include "analysis/methods/text_groups.h"
#include "qkscope/analysis.h"

namespace qkscope {

// Full PCA from the moments. qk_accuracy needs rows and is NaN.
PcaResult pca_from_moments(const Moments& queries, const Moments& keys, const PooledMoments& pooled,
                           const PcaOptions& options);
// Full PCA from the rows. With `texts`, qk_rows and qk_right are counted by group of texts.
PcaResult combined_pca(const CentredRows& queries, const CentredRows& keys,
                       const PooledMoments& pooled, const PcaOptions& options,
                       const TextGroups* texts = nullptr);

// First component only, found from a nearby starting direction, for jackknife replicates.
// Numbers that need rows or further components are NaN.
PcaResult first_component(const Moments& queries, const Moments& keys, const PooledMoments& pooled,
                          std::span<const double> near, const PcaOptions& options);

// PCA of the rows of one kind (queries or keys). The largest coordinate of every component is
// positive.
std::vector<SideComponent> separate_pca(const Moments& rows, int components);

}  // namespace qkscope
