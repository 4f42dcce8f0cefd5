// Sums of positions t and of u = log2(t + 1) in fixed point, exact and independent of the order of
// summation. Header-only because the CPU and the CUDA module both use it.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "qkscope/statistics.h"

namespace qkscope {

__extension__ using Int128 = __int128;

// Exact sums over a set of positions.
struct ExactPositions {
  std::int64_t n = 0;
  Int128 t = 0;   // sum of t
  Int128 tt = 0;  // sum of t^2
  Int128 u = 0;   // sum of u in units of 2^-50
  Int128 uu = 0;  // sum of u^2 in units of 2^-50
  Int128 tu = 0;  // sum of t u in units of 2^-40

  ExactPositions& operator+=(const ExactPositions& other) {
    n += other.n;
    t += other.t;
    tt += other.tt;
    u += other.u;
    uu += other.uu;
    tu += other.tu;
    return *this;
  }
  ExactPositions operator-(const ExactPositions& other) const {
    return {n - other.n, t - other.t, tt - other.tt, u - other.u, uu - other.uu, tu - other.tu};
  }

  // Returns means and centred second moments in float64.
  PositionSums sums() const {
    PositionSums out;
    out.n = n;
    if (n == 0) return out;
    const auto count = static_cast<double>(n);
    const double sum_t = static_cast<double>(t);
    const double sum_u = std::ldexp(static_cast<double>(u), -50);
    out.t_mean = sum_t / count;
    out.u_mean = sum_u / count;
    out.t_m2 = static_cast<double>(tt * n - t * t) / count;
    out.u_m2 = std::ldexp(static_cast<double>(uu), -50) - sum_u * out.u_mean;
    out.tu_m2 = std::ldexp(static_cast<double>(tu), -40) - sum_t * out.u_mean;
    if (n == 1) out.u_m2 = out.tu_m2 = 0;
    return out;
  }
};

// Prefix sums over positions; grows on demand.
class PositionTable {
 public:
  // Returns the sums over positions [begin, end).
  ExactPositions range(std::int64_t begin, std::int64_t end) {
    if (begin >= end) return {};
    grow(end);
    return before_[static_cast<std::size_t>(end)] - before_[static_cast<std::size_t>(begin)];
  }

 private:
  void grow(std::int64_t end) {
    for (auto t = static_cast<std::int64_t>(before_.size()) - 1; t < end; ++t) {
      auto next = before_.back();
      const double u = std::log2(static_cast<double>(t + 1));
      next += {1,
               t,
               Int128(t) * t,
               std::llround(std::ldexp(u, 50)),
               std::llround(std::ldexp(u * u, 50)),
               std::llround(std::ldexp(static_cast<double>(t) * u, 40))};
      before_.push_back(next);
    }
  }

  std::vector<ExactPositions> before_ =
      std::vector<ExactPositions>(1);  // element t holds the sums over [0, t)
};

// Position sums over all documents: positions below `first`, the other positions, and each bucket.
struct DocumentPositions {
  ExactPositions first;
  ExactPositions body;
  std::vector<ExactPositions> buckets;
};
// Computes the position sums of documents with the given lengths in tokens.
DocumentPositions positions_of(std::span<const std::int64_t> lengths, std::int64_t first,
                               std::int64_t bucket_size, std::int64_t buckets);

}  // namespace qkscope
