// Sums of positions t and of u = log2(t + 1), exact and independent of order: t in integers, u in
// integers of 2^-50 and t u in integers of 2^-40. In this header alone, for both devices.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "qkscope/statistics.h"

namespace qkscope {

__extension__ using Int128 = __int128;

struct ExactPositions {
  std::int64_t n = 0;
  Int128 t = 0;
  Int128 tt = 0;
  Int128 u = 0;   // 2^-50
  Int128 uu = 0;  // 2^-50
  Int128 tu = 0;  // 2^-40

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

// Sums of ranges of positions, from sums of all that come before.
class PositionTable {
 public:
  // Of positions [begin, end).
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

  std::vector<ExactPositions> before_ = std::vector<ExactPositions>(1);  // [t]: of [0, t)
};

// Of all documents with these lengths: the first `first` positions, the others, and each bucket.
struct DocumentPositions {
  ExactPositions first;
  ExactPositions body;
  std::vector<ExactPositions> buckets;
};
DocumentPositions positions_of(std::span<const std::int64_t> lengths, std::int64_t first,
                               std::int64_t bucket_size, std::int64_t buckets);

}  // namespace qkscope
