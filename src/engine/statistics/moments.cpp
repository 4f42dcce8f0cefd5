#include "engine/statistics/moments.h"

#include <algorithm>

#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/thread_pool.h"

namespace qkscope {
namespace {

// Factors of the merge formulas for two sets of rows.
struct MergeFactors {
  double a;        // rows of the first set
  double b;        // rows of the second set
  double n;        // a + b
  double share;    // b / n
  double product;  // a b / n
};

MergeFactors merge_factors(std::int64_t rows_a, std::int64_t rows_b) {
  const auto a = static_cast<double>(rows_a);
  const auto b = static_cast<double>(rows_b);
  const double n = a + b;
  return {a, b, n, b / n, a * b / n};
}

// Sums of the second to fourth powers of one centred dimension.
struct CentralMoments {
  double m2;
  double m3;
  double m4;
};

// Third and fourth moments by the formulas of Pebay (SAND2008-6212).
void merge_powers(CentralMoments& into, const CentralMoments& part, double delta,
                  const MergeFactors& w) {
  const double square = delta * delta;
  const double ab = w.a * w.b;
  into.m4 += part.m4 + square * square * ab * (w.a * w.a - ab + w.b * w.b) / (w.n * w.n * w.n) +
             6.0 * square * (w.a * w.a * part.m2 + w.b * w.b * into.m2) / (w.n * w.n) +
             4.0 * delta * (w.a * part.m3 - w.b * into.m3) / w.n;
  into.m3 += part.m3 + square * delta * ab * (w.a - w.b) / (w.n * w.n) +
             3.0 * delta * (w.a * part.m2 - w.b * into.m2) / w.n;
}

// m2 += part + delta delta^T a b / n, for upper triangles stored by rows.
void merge_triangle(double* m2, const double* part, const double* delta, std::int64_t dim,
                    double product) {
  for (std::int64_t i = 0; i < dim; ++i) {
    const double scaled = delta[i] * product;
    for (std::int64_t j = i; j < dim; ++j) *m2++ += *part++ + scaled * delta[j];
  }
}

// Merges the moments of one head.
class HeadMerge {
 public:
  HeadMerge(HeadMoments& into, const HeadMoments& part, const MergeFactors& weights,
            std::int64_t head)
      : into_(into), part_(part), w_(weights), head_(head), dim_(into.dim), delta_(as_index(dim_)) {
    for (std::int64_t j = 0; j < dim_; ++j)
      delta_[as_index(j)] = part_.mean[at(j)] - into_.mean[at(j)];
  }

  void run() {
    merge_dimensions();
    const auto triangle = head_ * triangle_size(dim_);
    merge_triangle(into_.m2.data() + triangle, part_.m2.data() + triangle, delta_.data(), dim_,
                   w_.product);
    for (std::int64_t pair = 0; pair < into_.pairs; ++pair)
      average(into_.pair_abs, part_.pair_abs, head_ * into_.pairs + pair);
    average(into_.norm_mean, part_.norm_mean, head_);
    into_.norm_max[as_index(head_)] =
        std::max(into_.norm_max[as_index(head_)], part_.norm_max[as_index(head_)]);
  }

 private:
  std::size_t at(std::int64_t j) const { return as_index(head_ * dim_ + j); }

  void merge_dimensions() {
    const double delta_t = part_.positions.t_mean - into_.positions.t_mean;
    const double delta_u = part_.positions.u_mean - into_.positions.u_mean;
    for (std::int64_t j = 0; j < dim_; ++j) {
      const auto i = at(j);
      const double delta = delta_[as_index(j)];
      const auto diagonal = as_index(head_ * triangle_size(dim_) + triangle_index(dim_, j, j));
      CentralMoments powers{into_.m2[diagonal], into_.m3[i], into_.m4[i]};
      merge_powers(powers, {part_.m2[diagonal], part_.m3[i], part_.m4[i]}, delta, w_);
      into_.m3[i] = powers.m3;
      into_.m4[i] = powers.m4;
      into_.mean[i] += delta * w_.share;
      into_.ct[i] += part_.ct[i] + delta * delta_t * w_.product;
      into_.cu[i] += part_.cu[i] + delta * delta_u * w_.product;
      into_.min[i] = std::min(into_.min[i], part_.min[i]);
      into_.max[i] = std::max(into_.max[i], part_.max[i]);
    }
  }

  void average(std::vector<double>& into, const std::vector<double>& part, std::int64_t i) const {
    into[as_index(i)] += (part[as_index(i)] - into[as_index(i)]) * w_.share;
  }

  HeadMoments& into_;
  const HeadMoments& part_;
  const MergeFactors& w_;
  std::int64_t head_;
  std::int64_t dim_;
  std::vector<double> delta_;  // (dim)
};

void merge_bucket(BucketMoments& into, const BucketMoments& part, std::int64_t head,
                  std::int64_t bucket) {
  const auto b = as_index(bucket);
  if (part.n[b] == 0) return;
  const auto w = merge_factors(into.n[b], part.n[b]);
  const auto cell = head * into.buckets + bucket;
  std::vector<double> delta(static_cast<std::size_t>(into.dim));
  for (std::int64_t j = 0; j < into.dim; ++j) {
    const auto i = static_cast<std::size_t>(cell * into.dim + j);
    const double step = part.mean[i] - into.mean[i];
    delta[as_index(j)] = step;
    into.mean[i] += step * w.share;
    into.m2[i] += part.m2[i] + step * step * w.product;
  }
  if (into.cov.empty()) return;
  const auto triangle = cell * triangle_size(into.dim);
  merge_triangle(into.cov.data() + triangle, part.cov.data() + triangle, delta.data(), into.dim,
                 w.product);
}

}  // namespace

void merge(PositionSums& into, const PositionSums& part) {
  if (part.n == 0) return;
  const auto w = merge_factors(into.n, part.n);
  const double t = part.t_mean - into.t_mean;
  const double u = part.u_mean - into.u_mean;
  into.t_m2 += part.t_m2 + t * t * w.product;
  into.u_m2 += part.u_m2 + u * u * w.product;
  into.tu_m2 += part.tu_m2 + t * u * w.product;
  into.t_mean += t * w.share;
  into.u_mean += u * w.share;
  into.n += part.n;
}

void merge(HeadMoments& into, const HeadMoments& part) {
  QKSCOPE_ASSERT(into.heads == part.heads && into.dim == part.dim && into.pairs == part.pairs);
  if (part.n() == 0) return;
  if (into.n() == 0) {
    into = part;
    return;
  }
  const auto weights = merge_factors(into.n(), part.n());
  parallel_for(into.heads, [&](std::int64_t head) { HeadMerge(into, part, weights, head).run(); });
  merge(into.positions, part.positions);
}

void merge(BucketMoments& into, const BucketMoments& part) {
  QKSCOPE_ASSERT(into.heads == part.heads && into.buckets == part.buckets &&
                 into.cov.size() == part.cov.size());
  parallel_for(into.heads, [&](std::int64_t head) {
    for (std::int64_t bucket = 0; bucket < into.buckets; ++bucket)
      merge_bucket(into, part, head, bucket);
  });
  for (std::size_t bucket = 0; bucket < into.n.size(); ++bucket) into.n[bucket] += part.n[bucket];
}

void merge(LayerMoments& into, const LayerMoments& part) {
  merge(into.first, part.first);
  merge(into.body, part.body);
  merge(into.buckets, part.buckets);
}

}  // namespace qkscope
