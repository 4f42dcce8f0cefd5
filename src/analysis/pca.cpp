#include "analysis/pca.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/edge.h"
#include "numerics/correlation.h"
#include "numerics/products.h"
#include "numerics/symmetric_eigen.h"

namespace qkscope {
namespace {

struct Projection {
  double variance = 0;    // sum of squares around the mean
  double covariance = 0;  // with position, a sum
};

Projection project(const CentredRows& rows, std::span<const double> direction) {
  return {std::max(0.0, quadratic_form(rows.scatter, direction)),
          dot(rows.cross_scatter, direction)};
}

// A direction whose variance is rounding error against the rows' own has no correlation.
Correlation with_position(const CentredRows& rows, const Projection& projection) {
  const bool varies = projection.variance > 1e-24 * trace(rows.scatter);
  return correlation(projection.covariance, varies ? projection.variance : 0, rows.position_scatter,
                     rows.size());
}

bool must_flip(const PcaComponent& component, const PcaOptions& options) {
  const double r_q = component.q.r;
  const double r_k = component.k.r;
  if (!std::isnan(r_q) && std::fabs(r_q) >= options.weak_correlation) return r_q < 0;
  if (!std::isnan(r_k)) return r_k < 0;
  const auto largest =
      std::max_element(component.direction.begin(), component.direction.end(),
                       [](double x, double y) { return std::fabs(x) < std::fabs(y); });
  return *largest < 0;
}

void flip(PcaComponent& component) {
  component.q.r = -component.q.r;
  component.k.r = -component.k.r;
  for (double& x : component.direction) x = -x;
}

void describe_first(const CentredRows& queries, const CentredRows& keys,
                    const PooledMoments& pooled, PcaResult& result) {
  const auto& direction = result.components.front().direction;
  const auto centre = dot(pooled.mean, direction);
  const auto q = project(queries, direction);
  const auto k = project(keys, direction);
  result.mu_q = dot(queries.mean, direction) - centre;
  result.mu_k = dot(keys.mean, direction) - centre;
  result.slope_q = q.covariance / queries.position_scatter;
  result.slope_k = k.covariance / keys.position_scatter;
  const double within = 0.5 * (q.variance / static_cast<double>(queries.size()) +
                               k.variance / static_cast<double>(keys.size()));
  const double apart = dot(pooled.delta, direction);
  result.fisher = apart * apart / within;
}

const char* name_of(HeadClass head_class) {
  switch (head_class) {
    case HeadClass::position_dominated:
      return "position_dominated";
    case HeadClass::q_positional:
      return "q_positional";
    case HeadClass::k_positional:
      return "k_positional";
    case HeadClass::content_focused:
      return "content_focused";
    case HeadClass::mixed:
      return "mixed";
    case HeadClass::undefined:
      break;
  }
  return "";
}

}  // namespace

PcaResult combined_pca(const CentredRows& queries, const CentredRows& keys,
                       const PooledMoments& pooled, const PcaOptions& options) {
  const Eigenpairs eigen = symmetric_eigen(pooled.scatter);
  PcaResult result;
  // Rounding can leave the smallest eigenvalues of a singular matrix just below zero.
  double total = 0;
  for (const double value : eigen.values) total += std::max(0.0, value);
  for (const double value : eigen.values)
    result.explained_variance.push_back(std::max(0.0, value) / total);
  const auto kept = std::min<std::int64_t>(options.components, eigen.vectors.rows);
  for (std::int64_t i = 0; i < kept; ++i) {
    PcaComponent component;
    component.explained_variance = result.explained_variance[static_cast<std::size_t>(i)];
    component.direction.assign(eigen.vectors.row(i), eigen.vectors.row(i) + eigen.vectors.cols);
    component.q = with_position(queries, project(queries, component.direction));
    component.k = with_position(keys, project(keys, component.direction));
    if (must_flip(component, options)) flip(component);
    result.positional_variance_q += component.explained_variance * component.q.r * component.q.r;
    result.positional_variance_k += component.explained_variance * component.k.r * component.k.r;
    result.components.push_back(std::move(component));
  }
  describe_first(queries, keys, pooled, result);
  return result;
}

HeadClass classify(double r_q, double r_k, const TaxonomyOptions& options) {
  if (std::isnan(r_q) || std::isnan(r_k)) return HeadClass::undefined;
  const double k = std::fabs(r_k);
  if (r_q > options.high && k > options.high) return HeadClass::position_dominated;
  if (r_q > options.high && k < options.low) return HeadClass::q_positional;
  if (r_q < options.low && k > options.high) return HeadClass::k_positional;
  if (r_q < options.low && k < options.low) return HeadClass::content_focused;
  return HeadClass::mixed;
}

std::string to_string(HeadClass head_class) {
  return at_edge([&] { return std::string(name_of(head_class)); });
}

}  // namespace qkscope
