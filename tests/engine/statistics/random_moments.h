// Synthetic rows for tests, and reference moments computed from them in float64 in two passes.
#pragma once

#include <cmath>
#include <random>
#include <vector>

#include "engine/statistics/moments.h"

namespace qkscope {

struct TestRows {
  std::int64_t heads = 2;
  std::int64_t dim = 5;
  std::vector<std::int64_t> position;  // (rows)
  std::vector<float> values;           // (rows, heads, dim)

  std::int64_t rows() const { return std::ssize(position); }
  float at(std::int64_t row, std::int64_t head, std::int64_t j) const {
    return values[static_cast<std::size_t>((row * heads + head) * dim + j)];
  }
};

// Channel j has mean 10 j and a linear trend over positions.
inline TestRows random_rows(std::int64_t rows, std::int64_t first_position, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  TestRows out;
  for (std::int64_t r = 0; r < rows; ++r) {
    out.position.push_back(first_position + r);
    for (std::int64_t i = 0; i < out.heads * out.dim; ++i)
      out.values.push_back(normal(random) + static_cast<float>(10 * (i % out.dim)) +
                           0.01f * static_cast<float>(r));
  }
  return out;
}

inline TestRows operator+(TestRows a, const TestRows& b) {
  a.position.insert(a.position.end(), b.position.begin(), b.position.end());
  a.values.insert(a.values.end(), b.values.begin(), b.values.end());
  return a;
}

inline HeadMoments moments_of(const TestRows& rows, std::int64_t pairs = 2) {
  auto m = make_head_moments({rows.heads, rows.dim, pairs, 1, false});
  if (rows.rows() == 0) return m;
  PositionPrefixSums table;
  ExactPositionSums positions;
  for (const auto t : rows.position) positions += table.sums_over(t, t + 1);
  m.positions = positions.to_position_sums();
  const auto n = static_cast<double>(rows.rows());
  const auto i = [&](std::int64_t head, std::int64_t j) {
    return static_cast<std::size_t>(head * rows.dim + j);
  };
  for (std::int64_t head = 0; head < rows.heads; ++head) {
    for (std::int64_t r = 0; r < rows.rows(); ++r) {
      double norm = 0;
      for (std::int64_t j = 0; j < rows.dim; ++j) {
        const float x = rows.at(r, head, j);
        m.mean[i(head, j)] += x;  // exact for equal numbers
        m.min[i(head, j)] = std::min(m.min[i(head, j)], x);
        m.max[i(head, j)] = std::max(m.max[i(head, j)], x);
        norm += static_cast<double>(x) * x;
      }
      const auto h = static_cast<std::size_t>(head);
      m.norm_mean[h] += std::sqrt(norm) / n;
      m.norm_max[h] = std::max(m.norm_max[h], static_cast<float>(std::sqrt(norm)));
      for (std::int64_t p = 0; p < pairs; ++p)
        m.pair_abs[static_cast<std::size_t>(head * pairs + p)] +=
            std::hypot(static_cast<double>(rows.at(r, head, p)),
                       static_cast<double>(rows.at(r, head, p + pairs))) /
            n;
    }
    for (std::int64_t j = 0; j < rows.dim; ++j) m.mean[i(head, j)] /= n;
    for (std::int64_t r = 0; r < rows.rows(); ++r) {
      const auto position = static_cast<double>(rows.position[static_cast<std::size_t>(r)]);
      for (std::int64_t j = 0; j < rows.dim; ++j) {
        const double x = rows.at(r, head, j) - m.mean[i(head, j)];
        m.ct[i(head, j)] += x * (position - m.positions.t_mean);
        m.cu[i(head, j)] += x * (std::log2(position + 1) - m.positions.u_mean);
        m.m3[i(head, j)] += x * x * x;
        m.m4[i(head, j)] += x * x * x * x;
        for (std::int64_t k = j; k < rows.dim; ++k)
          m.m2[static_cast<std::size_t>(head * triangle_size(rows.dim) +
                                        triangle_index(rows.dim, j, k))] +=
              x * (rows.at(r, head, k) - m.mean[i(head, k)]);
      }
    }
  }
  return m;
}

// Largest difference of each field relative to its scale: sqrt(M2_ii M2_jj), n sigma^3, ...
inline double difference(const HeadMoments& a, const HeadMoments& b) {
  double worst = a.n() == b.n() ? 0.0 : 1e300;
  const auto take = [&](double x, double y, double scale) {
    if (x == y) return;
    worst = std::max(worst, std::abs(x - y) / scale);
  };
  const auto n = static_cast<double>(a.n());
  for (std::int64_t head = 0; head < a.heads; ++head)
    for (std::int64_t j = 0; j < a.dim; ++j) {
      const auto i = static_cast<std::size_t>(head * a.dim + j);
      const auto m2 = [&](std::int64_t d) {
        return b.m2[static_cast<std::size_t>(head * triangle_size(a.dim) +
                                             triangle_index(a.dim, d, d))];
      };
      const double sigma = std::sqrt(m2(j) / n);
      take(a.mean[i], b.mean[i], sigma + std::abs(b.mean[i]));
      take(a.ct[i], b.ct[i], std::sqrt(m2(j) * b.positions.t_m2));
      take(a.cu[i], b.cu[i], std::sqrt(m2(j) * b.positions.u_m2));
      // An outlier of 1,000 sigma makes the power sums much larger than n sigma^4.
      take(a.m3[i], b.m3[i], std::max(n * std::pow(sigma, 3), std::abs(b.m3[i])));
      take(a.m4[i], b.m4[i], std::max(n * std::pow(sigma, 4), b.m4[i]));
      take(a.min[i], b.min[i], 0);
      take(a.max[i], b.max[i], 0);
      for (std::int64_t k = j; k < a.dim; ++k) {
        const auto at =
            static_cast<std::size_t>(head * triangle_size(a.dim) + triangle_index(a.dim, j, k));
        take(a.m2[at], b.m2[at], std::sqrt(m2(j) * m2(k)));
      }
    }
  for (std::size_t i = 0; i < a.pair_abs.size(); ++i)
    take(a.pair_abs[i], b.pair_abs[i], b.pair_abs[i]);
  for (std::size_t i = 0; i < a.norm_mean.size(); ++i) {
    take(a.norm_mean[i], b.norm_mean[i], b.norm_mean[i]);
    take(a.norm_max[i], b.norm_max[i], 0);
  }
  return worst;
}

}  // namespace qkscope
