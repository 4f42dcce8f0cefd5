// Combined principal components of a head's queries and keys.
#pragma once

#include "analysis/methods/moments.h"
#include "qkscope/analysis.h"

namespace qkscope {

// PCA of queries and keys together, from moments. qk_accuracy is NaN without individual rows.
PcaResult pca_from_moments(const Moments& queries, const Moments& keys, const PooledMoments& pooled,
                           const PcaOptions& options);
// PCA of queries and keys together, from individual rows. For each group of texts (one group if
// `texts` is null), qk_rows counts rows and qk_right those that a linear threshold classifies
// correctly as query or key.
PcaResult combined_pca(const CentredRows& queries, const CentredRows& keys,
                       const PooledMoments& pooled, const PcaOptions& options,
                       const JackknifeGroups* texts = nullptr);

// Finds only the first component, from a nearby initial direction, for jackknife replicates. Other
// components and fields that need individual rows are NaN.
PcaResult refine_first_component(const Moments& queries, const Moments& keys,
                                 const PooledMoments& pooled, std::span<const double> initial,
                                 const PcaOptions& options);

// Sets r_q_axis and r_k_axis and their jackknife replicates by cross-fitting: the rows of each
// group of texts are projected onto the drift axis of the other groups. Queries are centred by
// their common mean, keys by theirs. The pooled projections are correlated with position.
// `queries_without` and `keys_without` are leave-one-group-out moments.
void correlate_along_drift_axis(const GroupedRows& queries, const GroupedRows& keys,
                                std::span<const Moments> queries_without,
                                std::span<const Moments> keys_without, PcaResult& result);

// PCA of the queries or of the keys alone. The sign of each component makes its coordinate of
// largest magnitude positive.
struct QueryOrKeyPca {
  std::vector<SideComponent> components;
  std::vector<double> spectrum;  // (dim): eigenvalues of the scatter, descending
};
QueryOrKeyPca query_or_key_pca(const Moments& rows, int components);

}  // namespace qkscope
