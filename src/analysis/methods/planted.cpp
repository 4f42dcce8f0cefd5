#include "analysis/methods/planted.h"

#include <cmath>

#include "base/core/convert.h"
#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/numerics/random.h"

namespace qkscope {
namespace {

// Keeps each position with equal probability: gaps follow a geometric distribution.
std::vector<std::int32_t> sample_positions(const PlantedOptions& options, Random& random) {
  std::vector<std::int32_t> positions;
  const double keep = options.rows_per_bucket / options.bucket_size;
  if (keep >= 1) {
    for (std::int32_t t = 0; t < options.context; ++t) positions.push_back(t);
    return positions;
  }
  double at = -1;
  while (true) {
    at += 1 + std::floor(std::log(1 - random.uniform()) / std::log1p(-keep));
    if (at >= options.context) return positions;
    positions.push_back(static_cast<std::int32_t>(at));
  }
}

// Adds the noise-free planted query or key vector at position t to x.
void add_planted_vector(const PlantedOptions& options, HeadKind kind, const Matrix& basis, double t,
                        std::vector<double>& x) {
  const bool query = kind == HeadKind::query;
  const auto add = [&](std::int64_t axis, double amount) {
    const double* const direction = basis.row(axis);
    for (std::size_t j = 0; j < x.size(); ++j) x[j] += amount * direction[j];
  };
  const double drift = query ? options.drift_q : options.drift_k;
  add(0, (query ? options.mean_q_a : options.mean_k_a) + drift * (t - 0.5 * options.context));
  add(1, (query ? 0.5 : -0.5) * options.separation);
  for (std::size_t i = 0; i < options.planes.size(); ++i) {
    const auto& plane = options.planes[i];
    const auto axis = static_cast<std::int64_t>(2 + 2 * i);
    add(axis, plane.radius * std::cos(plane.omega * t));
    add(axis + 1, plane.radius * std::sin(plane.omega * t));
  }
}

}  // namespace

Matrix generate_planted_basis(const PlantedOptions& options) {
  QKSCOPE_ASSERT(options.dim >= 2 + 2 * std::ssize(options.planes));
  const auto dim = static_cast<std::int64_t>(options.dim);
  Random random(options.seed ^ 0xBA515u);
  Matrix basis(dim, dim);
  for (double& x : basis.data) x = random.normal();
  for (std::int64_t i = 0; i < dim; ++i) {
    const std::span<double> row(basis.row(i), as_index(dim));
    for (int round = 0; round < 2; ++round)
      for (std::int64_t before = 0; before < i; ++before) {
        const std::span<const double> other(basis.row(before), as_index(dim));
        const double along = dot(row, other);
        for (std::size_t j = 0; j < row.size(); ++j) row[j] -= along * other[j];
      }
    const double length = norm(row);
    for (double& x : row) x /= length;
  }
  return basis;
}

HeadRows generate_planted_rows(const PlantedOptions& options, HeadKind kind,
                               std::uint64_t rows_seed) {
  const Matrix basis = generate_planted_basis(options);
  Random random(rows_seed);
  HeadRows sampled;
  sampled.head_dim = options.dim;
  std::vector<double> x(as_index(options.dim));
  for (int example = 0; example < options.examples; ++example) {
    for (const auto t : sample_positions(options, random)) {
      for (double& value : x) value = options.noise * random.normal();
      add_planted_vector(options, kind, basis, t, x);
      for (const double value : x) {
        const auto narrow = static_cast<float>(value);
        sampled.vectors.push_back(options.round_to_bf16 ? to_float(to_bf16(narrow)) : narrow);
      }
      sampled.position.push_back(t);
      sampled.example_id.push_back(example);
      sampled.bucket.push_back(t / options.bucket_size);
    }
  }
  return sampled;
}

}  // namespace qkscope
