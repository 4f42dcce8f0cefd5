#include "analysis/methods/rotation.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/core/numbers.h"
#include "base/numerics/matrix.h"
#include "base/numerics/products.h"
#include "base/numerics/sample_statistics.h"

namespace qkscope {
namespace {

// Returns E[(q-k)(q-k)^T] over all (query, key) pairs.
Matrix difference_covariance(const Moments& queries, const Moments& keys,
                             const PooledMoments& pooled) {
  Matrix covariance = queries.scatter;
  const auto dim = as_index(queries.dim());
  const auto nq = static_cast<double>(queries.count);
  const auto nk = static_cast<double>(keys.count);
  for (std::size_t i = 0; i < dim; ++i)
    for (std::size_t j = 0; j < dim; ++j) {
      double& entry = covariance.data[i * dim + j];
      entry = entry / nq + keys.scatter.data[i * dim + j] / nk + pooled.delta[i] * pooled.delta[j];
    }
  return covariance;
}

// Returns the normalized component of x orthogonal to the unit vector a; empty if x is parallel to
// a. Orthogonalizes twice to reduce rounding errors.
std::vector<double> orthogonal_unit_vector(std::vector<double> x, std::span<const double> a) {
  const double before = norm(x);
  for (int round = 0; round < 2; ++round) {
    const double along = dot(x, a);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] -= along * a[i];
  }
  const double length = norm(x);
  if (!(length > 1e-12 * before)) return {};
  for (double& value : x) value /= length;
  return x;
}

// Projects the unit vector a out of a symmetric matrix M: (I - aa^T) M (I - aa^T).
Matrix project_out_direction(Matrix matrix, std::span<const double> a) {
  const auto along = multiply(matrix, a);
  const double both = dot(along, a);
  for (std::int64_t i = 0; i < matrix.rows; ++i)
    for (std::int64_t j = 0; j < matrix.cols; ++j) {
      const auto x = as_index(i);
      const auto y = as_index(j);
      matrix(i, j) -= a[x] * along[y] + along[x] * a[y] - both * a[x] * a[y];
    }
  return matrix;
}

std::vector<double> first_eigenvector(const Matrix& matrix, std::span<const double> near) {
  if (!near.empty()) return top_eigenvector(matrix, near);
  const Eigenpairs eigen = symmetric_eigenpairs(matrix);
  return {eigen.vectors.row(0), eigen.vectors.row(0) + eigen.vectors.cols};
}

// Returns the unit vector b that separates queries from keys. `near`: initial vector for the
// eigensolver, from a head with nearly the same rows; may be empty.
std::vector<double> separation_direction(const Moments& queries, const Moments& keys,
                                         const PooledMoments& pooled, std::span<const double> a,
                                         RotationOptions::Separation how,
                                         std::span<const double> near) {
  using Separation = RotationOptions::Separation;
  if (how == Separation::mean) return orthogonal_unit_vector(pooled.delta, a);
  const Matrix difference = difference_covariance(queries, keys, pooled);
  auto b = orthogonal_unit_vector(
      first_eigenvector(
          how == Separation::eigen ? project_out_direction(difference, a) : difference, near),
      a);
  if (!b.empty() && dot(b, pooled.delta) < 0)
    for (double& x : b) x = -x;
  return b;
}

void set_drift_statistics(const Moments& queries, const Moments& keys, const PooledMoments& pooled,
                          RotationResult& result) {
  const auto& a = result.a;
  const double apart = dot(pooled.delta, a);
  const double variance_q = quadratic_form(queries.scatter, a);
  const double variance_k = quadratic_form(keys.scatter, a);
  const double variance = variance_q + variance_k + pooled.between * apart * apart;
  const double along_q = dot(queries.cross_scatter, a);
  const double along_k = dot(keys.cross_scatter, a);
  result.position_r = std::fabs(
      correlation(dot(pooled.cross_scatter, a), variance, pooled.position_scatter, pooled.count).r);
  result.r_q_a = correlation(along_q, variance_q, queries.position_scatter, queries.count).r;
  result.r_k_a = correlation(along_k, variance_k, keys.position_scatter, keys.count).r;
  result.alpha_q = along_q / queries.position_scatter;
  result.alpha_k = along_k / keys.position_scatter;
  result.mu_q_a = dot(queries.mean, a);
  result.mu_k_a = dot(keys.mean, a);
  result.bias_strength = result.mu_q_a * result.alpha_k;
  result.var_frac_a = variance / trace(pooled.scatter);
}

void set_separation_statistics(const Moments& queries, const Moments& keys,
                               const PooledMoments& pooled, RotationResult& result) {
  const auto& b = result.b;
  const double q = quadratic_form(queries.scatter, b);
  const double k = quadratic_form(keys.scatter, b);
  const auto nq = static_cast<double>(queries.count);
  const auto nk = static_cast<double>(keys.count);
  const double apart = dot(pooled.delta, b);
  result.mu_q_b = dot(queries.mean, b);
  result.mu_k_b = dot(keys.mean, b);
  // Share of E[|q-k|^2] along the axis b: b^T D b / trace(D), where D is difference_covariance().
  result.separation_strength =
      (q / nq + k / nk + apart * apart) /
      (trace(queries.scatter) / nq + trace(keys.scatter) / nk + dot(pooled.delta, pooled.delta));
  result.var_frac_b = (q + k + pooled.between * apart * apart) / trace(pooled.scatter);
  result.plane_var_fraction = result.var_frac_a + result.var_frac_b;
  result.content_var_b = (q + k) / static_cast<double>(pooled.count);
}

// Largest |correlation| of position with the separation axis b or an axis of the orthogonal
// complement of a and b. Skips b if its variance is only rounding error.
double residual_correlation(const PooledMoments& pooled, std::span<const double> b,
                            const OrthogonalComplement& complement) {
  const double variance = quadratic_form(pooled.scatter, b);
  if (variance <= 1e-20 * trace(pooled.scatter)) return complement.position_r;
  const double r = dot(pooled.cross_scatter, b) / std::sqrt(variance * pooled.position_scatter);
  return std::max(complement.position_r, std::fabs(r));
}

FrequencyBand frequency_band(const RotationOptions& options) {
  if (options.inv_freq.empty()) return {0, options.max_omega};
  const auto [low, high] = std::minmax_element(options.inv_freq.begin(), options.inv_freq.end());
  return {*low, std::max(*high, *low * (1 + 1e-9))};
}

// Finds the orthogonal complement of the axes a and b, with two axes for each of max(1,
// options.pairs) planes.
OrthogonalComplement complement_axes(const PooledMoments& pooled, const RotationResult& result,
                                     const RotationOptions& options) {
  return orthogonal_complement(pooled, result.a, result.b,
                               2 * std::max<std::int64_t>(1, options.pairs));
}

// Sets the fields that describe the orthogonal complement of a and b and need only moments.
void set_complement_statistics(const PooledMoments& pooled, const OrthogonalComplement& complement,
                               const RotationOptions& options, RotationResult& result) {
  result.residual_pos_r = residual_correlation(pooled, result.b, complement);
  if (complement.axes.rows >= 2) {
    result.c0.assign(complement.axes.row(0), complement.axes.row(1));
    result.c1.assign(complement.axes.row(1), complement.axes.row(2));
  }
  result.complement = find_complement_planes(pooled, complement, options);
}

// Sums the variance in the active planes (where rows rotate with position) and stores their axes.
void sum_active_plane_variance(const OrthogonalComplement& complement, RotationResult& result) {
  if (result.complement.empty()) return;
  result.active_variance = result.active_variance_total = 0;
  for (std::size_t i = 0; i < result.complement.size(); ++i) {
    const auto& pair = result.complement[i];
    if (!pair.active) continue;
    result.active_variance += pair.variance_share;
    result.active_variance_total += pair.variance_share_total;
    const auto first = static_cast<std::int64_t>(2 * i);
    result.active_axes.insert(result.active_axes.end(), complement.axes.row(first),
                              complement.axes.row(first + 2));
  }
}

// Returns pointers to the rows of queries and keys, sorted by position as in `order`.
std::vector<const float*> ordered_rows(const CentredRows& queries, const CentredRows& keys,
                                       const SortedPositions& order) {
  std::vector<const float*> rows(as_index(order.row_count()));
  std::size_t next = 0;
  for (const CentredRows* side : {&queries, &keys})
    for (std::int64_t i = 0; i < side->count; ++i)
      rows[order.row_ranks()[next++]] = side->source.vectors.data() + i * side->dim();
  return rows;
}

}  // namespace

RotationResult find_drift_and_separation(const Moments& queries, const Moments& keys,
                                         const PooledMoments& pooled,
                                         const RotationOptions& options,
                                         std::span<const double> near_b) {
  RotationResult result;
  const double drift = norm(pooled.cross_scatter);
  if (!(pooled.position_scatter > 0 && drift > 0)) {
    result.undefined = pooled.position_scatter > 0 ? "no_drift" : "constant_position";
    return result;
  }
  for (const double x : pooled.cross_scatter) result.a.push_back(x / drift);
  set_drift_statistics(queries, keys, pooled, result);
  result.b = separation_direction(queries, keys, pooled, result.a, options.separation, near_b);
  if (result.b.empty())
    result.undefined = "no_separation";
  else
    set_separation_statistics(queries, keys, pooled, result);
  return result;
}

FrequencySearch& RotationWorkspace::frequency_search(std::vector<std::int32_t> positions,
                                                     FrequencyBand band) {
  const bool same =
      search_ && band.low == band_.low && band.high == band_.high && positions == positions_;
  if (!same) {
    search_.emplace(positions, band);
    positions_ = std::move(positions);
    band_ = band;
  }
  return *search_;
}

RotationResult rotation_from_moments(const Moments& queries, const Moments& keys,
                                     const PooledMoments& pooled, const RotationOptions& options) {
  auto result = find_drift_and_separation(queries, keys, pooled, options);
  if (result.a.empty() || result.b.empty()) return result;
  set_complement_statistics(pooled, complement_axes(pooled, result, options), options, result);
  return result;
}

RotationResult analyze_planar_rotation(const CentredRows& queries, const CentredRows& keys,
                                       const PooledMoments& pooled, const RotationOptions& options,
                                       RotationWorkspace* memory) {
  auto result = find_drift_and_separation(queries, keys, pooled, options);
  if (result.a.empty()) return result;
  result.null = permutation_null_of_drift(queries, keys, pooled, result, options);
  std::vector<std::int32_t> positions(queries.source.position.begin(),
                                      queries.source.position.end());
  positions.insert(positions.end(), keys.source.position.begin(), keys.source.position.end());
  RotationWorkspace own;
  RotationWorkspace& used = memory ? *memory : own;
  FrequencySearch& search = used.frequency_search(std::move(positions), frequency_band(options));
  OrthogonalComplement complement;
  if (!result.b.empty()) {
    complement = complement_axes(pooled, result, options);
    set_complement_statistics(pooled, complement, options, result);
  }
  Matrix axes(2 * std::ssize(result.complement), complement.axes.cols);  // of the planes
  std::copy_n(complement.axes.data.begin(), axes.data.size(), axes.data.begin());
  PlaneUnitVectors& units = used.plane_unit_vectors();
  units.project_rows_onto_planes(
      axes, result.a, ordered_rows(queries, keys, search.sorted_positions()), pooled.mean);
  const auto wave = search.best_sinusoid(units.projections_on_line());
  result.omega = wave.omega;
  result.omega_r_squared = wave.r_squared;
  if (!result.complement.empty())
    search_plane_rotations(queries, keys, pooled, axes, {search, units}, options,
                           result.complement);
  sum_active_plane_variance(complement, result);
  return result;
}

}  // namespace qkscope
