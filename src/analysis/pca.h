// Combined principal components of a head's queries and keys, and the head's class by what its
// first component has to do with position.
#pragma once

#include <string>
#include <vector>

#include "analysis/moments.h"
#include "numerics/correlation.h"

namespace qkscope {

struct PcaOptions {
  int components = 10;
  double weak_correlation = 0.05;  // below it r_q does not decide the sign of a component
};

struct PcaComponent {
  double explained_variance = 0;  // share of the total
  Correlation q;                  // of the queries' projection with position
  Correlation k;
  std::vector<double> direction;  // (dim), unit length, sign fixed by r_q or r_k
};

struct PcaResult {
  std::vector<PcaComponent> components;
  std::vector<double> explained_variance;  // (dim): all of them
  // On the first component, in centred coordinates.
  double mu_q = 0;
  double mu_k = 0;
  double slope_q = 0;  // per token
  double slope_k = 0;
  double fisher = 0;  // squared distance of the means over the mean variance within q and k
  // Sum over the components kept of explained variance times squared correlation.
  double positional_variance_q = 0;
  double positional_variance_k = 0;
};

PcaResult combined_pca(const CentredRows& queries, const CentredRows& keys,
                       const PooledMoments& pooled, const PcaOptions& options);

enum class HeadClass {
  position_dominated,
  q_positional,
  k_positional,
  content_focused,
  mixed,
  undefined,  // a correlation does not exist (constant positions, a single row)
};

struct TaxonomyOptions {
  double high = 0.7;
  double low = 0.3;
};

HeadClass classify(double r_q, double r_k, const TaxonomyOptions& options);
std::string to_string(HeadClass head_class);

}  // namespace qkscope
