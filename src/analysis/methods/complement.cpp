#include <algorithm>
#include <cmath>

#include "analysis/methods/rotation.h"
#include "base/core/numbers.h"
#include "base/numerics/matrix.h"
#include "base/numerics/products.h"
#include "base/numerics/sample_statistics.h"

namespace qkscope {
namespace {

// Applies a Householder reflection to both sides of a symmetric matrix.
void reflect_symmetric_matrix(Matrix& matrix, std::span<const double> w) {
  reflect_rows(matrix, w);
  for (std::int64_t i = 0; i < matrix.rows; ++i)
    for (std::int64_t j = 0; j < i; ++j) std::swap(matrix(i, j), matrix(j, i));
  reflect_rows(matrix, w);
}

// Largest |correlation| between a coordinate and position, computed from `drift` (covariances with
// position) and the scatter matrix. Skips coordinates whose variance is only rounding error.
double largest_position_correlation(std::span<const double> drift, const Matrix& scatter,
                                    const PooledMoments& pooled) {
  const double negligible = 1e-20 * trace(pooled.scatter);
  double largest = 0;
  for (std::size_t i = 0; i < drift.size(); ++i) {
    const double variance = scatter.data[i * drift.size() + i];
    if (variance <= negligible) continue;
    const double r = drift[i] / std::sqrt(variance * pooled.position_scatter);
    largest = std::max(largest, std::fabs(r));
  }
  return largest;
}

std::vector<double> standard_basis_vector(std::int64_t size, std::size_t at) {
  std::vector<double> e(as_index(size));
  e[at] = 1;
  return e;
}

// Sets the separability of queries and keys in every plane: balanced accuracy of the best threshold
// on the line through the two centroids. Skips planes with a separability known from moments.
void set_plane_separability(const CentredRows& queries, const CentredRows& keys,
                            const PooledMoments& pooled, const Matrix& axes,
                            std::vector<ComplementPair>& planes) {
  if (planes.empty()) return;  // without an axis b, `axes` is empty too
  const auto delta = multiply(axes, pooled.delta);
  Matrix lines(axes.rows / 2, axes.cols);
  std::vector<std::size_t> apart;
  for (std::size_t i = 0; i < planes.size(); ++i) {
    if (!std::isnan(planes[i].separability)) continue;
    double* const line = lines.row(static_cast<std::int64_t>(apart.size()));
    const auto first = static_cast<std::int64_t>(2 * i);
    for (std::int64_t j = 0; j < axes.cols; ++j)
      line[j] = delta[2 * i] * axes(first, j) + delta[2 * i + 1] * axes(first + 1, j);
    apart.push_back(i);
  }
  if (apart.empty()) return;
  const Matrix q = project_rows(queries, pooled, lines);
  const Matrix k = project_rows(keys, pooled, lines);
  for (std::size_t n = 0; n < apart.size(); ++n) {
    const auto row = static_cast<std::int64_t>(n);
    planes[apart[n]].separability =
        0.5 + 0.5 * youden_j({q.row(row), as_index(q.cols)}, {k.row(row), as_index(k.cols)});
  }
}

// Returns true if the rotation from axis x to axis y has the direction of RoPE on (i, i + dim / 2).
// The signs of principal axes are arbitrary; this convention fixes the sign of omega.
bool rotates_like_rope(std::span<const double> x, std::span<const double> y) {
  const auto half = x.size() / 2;
  return dot(x.first(half), y.subspan(half, half)) >= dot(x.subspan(half, half), y.first(half));
}

double nearest_frequency(double omega, const std::vector<double>& frequencies) {
  // RoPE frequencies form a geometric series, so compare them by the logarithm of their ratio.
  const auto ratio = [&](double frequency) {
    return std::fabs(std::log(std::max(omega, 1e-300) / frequency));
  };
  const auto nearest = std::ranges::min_element(frequencies, {}, ratio);
  return nearest == frequencies.end() ? kNan : *nearest;
}

}  // namespace

OrthogonalComplement orthogonal_complement(const PooledMoments& pooled, std::span<const double> a,
                                           std::span<const double> b, std::int64_t wanted) {
  const auto dim = pooled.scatter.rows;
  if (dim < 3) return {};
  // Two Householder reflections map a and b to the first two axes. The eigenvectors of the
  // remaining block of the matrix are then orthogonal to a and b to machine precision.
  const auto first = householder_vector(a, standard_basis_vector(dim, 0));
  Matrix b_row(1, dim);
  b_row.data.assign(b.begin(), b.end());
  reflect_rows(b_row, first);
  b_row(0, 0) = 0;
  const auto second = householder_vector(b_row.data, standard_basis_vector(dim, 1));
  Matrix turned = pooled.scatter;
  reflect_symmetric_matrix(turned, first);
  reflect_symmetric_matrix(turned, second);
  Matrix rest(dim - 2, dim - 2);
  for (std::int64_t i = 0; i < dim - 2; ++i)
    for (std::int64_t j = 0; j < dim - 2; ++j)
      rest(i, j) = 0.5 * (turned(i + 2, j + 2) + turned(j + 2, i + 2));
  Eigenpairs eigen = leading_eigenpairs(rest, std::min(wanted, dim - 2));
  OrthogonalComplement complement{std::move(eigen.values), Matrix(std::min(wanted, dim - 2), dim),
                                  0};
  for (double& variance : complement.variance) variance = std::max(0.0, variance);
  for (std::int64_t i = 0; i < complement.axes.rows; ++i)
    std::copy(eigen.vectors.row(i), eigen.vectors.row(i) + dim - 2, complement.axes.row(i) + 2);
  reflect_rows(complement.axes, second);
  reflect_rows(complement.axes, first);
  std::vector<double> drift = pooled.cross_scatter;
  apply_householder(drift, first);
  apply_householder(drift, second);
  complement.position_r = largest_position_correlation(std::span(drift).subspan(2), rest, pooled);
  return complement;
}

std::vector<ComplementPair> find_complement_planes(const PooledMoments& pooled,
                                                   const OrthogonalComplement& complement,
                                                   const RotationOptions& options) {
  const auto pairs = std::min<std::int64_t>(options.pairs, complement.axes.rows / 2);
  if (pairs == 0) return {};  // heads of two dimensions have no complement
  const auto delta = multiply(complement.axes, pooled.delta);
  double left = 0;
  for (const double variance : complement.variance) left += variance;
  const double total = trace(pooled.scatter);
  std::vector<ComplementPair> result;
  for (std::size_t i = 0; i < as_index(pairs); ++i) {
    const double variance = complement.variance[2 * i] + complement.variance[2 * i + 1];
    ComplementPair pair;
    pair.variance_share = variance / left;
    pair.variance_share_total = variance / total;
    pair.angle_r = pair.omega = pair.nearest_inv_freq = kNan;
    // Separability is 0.5 if the centroids of queries and keys, projected onto the plane, coincide.
    const double radius = std::sqrt(variance / static_cast<double>(pooled.count));
    const bool mixed = std::hypot(delta[2 * i], delta[2 * i + 1]) <= 1e-9 * radius;
    pair.separability = mixed ? 0.5 : kNan;
    result.push_back(pair);
  }
  return result;
}

void search_plane_rotations(const CentredRows& queries, const CentredRows& keys,
                            const PooledMoments& pooled, const Matrix& axes,
                            PlaneSearchInput search, const RotationOptions& options,
                            std::vector<ComplementPair>& planes) {
  set_plane_separability(queries, keys, pooled, axes, planes);
  for (std::size_t i = 0; i < planes.size(); ++i) {
    const auto peak = search.frequencies.strongest_rotation_frequency(
        search.units.unit_vectors_in_plane(static_cast<std::int64_t>(i)));
    ComplementPair& pair = planes[i];
    pair.angle_r = peak.strength;
    const auto axis = [&](std::size_t at) {
      return std::span<const double>(axes.row(static_cast<std::int64_t>(at)), as_index(axes.cols));
    };
    const bool against = peak.reversed == rotates_like_rope(axis(2 * i), axis(2 * i + 1));
    pair.omega = against ? -peak.omega : peak.omega;
    pair.nearest_inv_freq = nearest_frequency(peak.omega, options.inv_freq);
    pair.active = peak.strength > options.active_angle_r;
  }
}

}  // namespace qkscope
