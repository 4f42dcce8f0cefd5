// Creates and merges the moments of q, k, v (group A, see qkscope/statistics.h) and of positions.
// Formulas: Chan, Golub and LeVeque for the second order, Pebay for the third and fourth.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "qkscope/statistics.h"

namespace qkscope {

struct MomentShape {
  std::int64_t heads = 0;
  std::int64_t dim = 0;
  std::int64_t pairs = 0;  // rotary pairs whose L2 norm is averaged; 0 disables it
  std::int64_t buckets = 0;
  bool bucket_covariance = false;

  bool operator==(const MomentShape&) const = default;
};

// Selects the moments of a q, k or v buffer to accumulate. Rows with position < first form one set,
// all others the second. Buckets have bucket_size positions; the last bucket is open-ended.
struct MomentRequest {
  MomentShape shape;
  std::int64_t first = 0;
  std::int64_t bucket_size = 1;
  bool interleaved = false;        // rotary pairs (2i, 2i + 1) instead of (i, i + pairs)
  std::int64_t first_rotated = 0;  // first dimension of the pairs; 0 on CUDA
  // CUDA only: offset subtracted from each row before summing; empty until the first batch sets it.
  std::vector<float>* shift = nullptr;
};

// Returns the moments of zero rows: min is +infinity, max is -infinity. Inline because the CUDA
// module uses these functions without linking the library.
inline HeadMoments make_head_moments(const MomentShape& shape) {
  const auto vectors = static_cast<std::size_t>(shape.heads * shape.dim);
  const auto heads = static_cast<std::size_t>(shape.heads);
  HeadMoments moments;
  moments.heads = shape.heads;
  moments.dim = shape.dim;
  moments.pairs = shape.pairs;
  moments.m2.resize(heads * static_cast<std::size_t>(triangle_size(shape.dim)));
  for (auto* field : {&moments.mean, &moments.ct, &moments.cu, &moments.m3, &moments.m4})
    field->resize(vectors);
  constexpr float kInfinity = __builtin_inff();
  moments.min.resize(vectors, kInfinity);
  moments.max.resize(vectors, -kInfinity);
  moments.pair_abs.resize(heads * static_cast<std::size_t>(shape.pairs));
  moments.norm_mean.resize(heads);
  moments.norm_max.resize(heads);
  return moments;
}

inline BucketMoments make_bucket_moments(const MomentShape& shape) {
  const auto cells = static_cast<std::size_t>(shape.heads * shape.buckets);
  BucketMoments buckets;
  buckets.heads = shape.heads;
  buckets.buckets = shape.buckets;
  buckets.dim = shape.dim;
  buckets.n.resize(static_cast<std::size_t>(shape.buckets));
  buckets.mean.resize(cells * static_cast<std::size_t>(shape.dim));
  buckets.m2.resize(buckets.mean.size());
  if (shape.bucket_covariance)
    buckets.cov.resize(cells * static_cast<std::size_t>(triangle_size(shape.dim)));
  return buckets;
}

inline LayerMoments make_layer_moments(const MomentShape& shape) {
  return {make_head_moments(shape), make_head_moments(shape), make_bucket_moments(shape)};
}

// Merges `part` into `into`, which has the same shape; bit-identical for any number of threads.
void merge_moments(HeadMoments& into, const HeadMoments& part);
void merge_moments(BucketMoments& into, const BucketMoments& part);
void merge_moments(LayerMoments& into, const LayerMoments& part);
void merge_moments(PositionSums& into, const PositionSums& part);

// Appends the documents of `part` to `into`. Throws a bad-input error that names the first property
// in which the two differ; `where` and `part_where` name the two sides in the message.
void merge_statistics(Statistics& into, const Statistics& part, const std::string& where,
                      const std::string& part_where);

// Computes the moments of token positions, overall and per bucket, from the document lengths.
void update_position_sums(Statistics& statistics);

// Sums of positions t and of u = log2(t + 1) are kept in fixed point: exact, and independent of the
// order of summation. Inline because the CUDA module uses them without linking the library.
__extension__ using Int128 = __int128;

struct ExactPositionSums {
  std::int64_t n = 0;
  Int128 t = 0;   // sum of t
  Int128 tt = 0;  // sum of t^2
  Int128 u = 0;   // sum of u in units of 2^-50
  Int128 uu = 0;  // sum of u^2 in units of 2^-50
  Int128 tu = 0;  // sum of t u in units of 2^-40

  ExactPositionSums& operator+=(const ExactPositionSums& other) {
    *this = {n + other.n, t + other.t, tt + other.tt, u + other.u, uu + other.uu, tu + other.tu};
    return *this;
  }
  ExactPositionSums operator-(const ExactPositionSums& other) const {
    return {n - other.n, t - other.t, tt - other.tt, u - other.u, uu - other.uu, tu - other.tu};
  }

  // Returns float64 means and centred second moments of the positions t and of u = log2(t + 1).
  PositionSums to_position_sums() const {
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

class PositionPrefixSums {
 public:
  // Returns the sums over positions [begin, end).
  ExactPositionSums sums_over(std::int64_t begin, std::int64_t end) {
    if (begin >= end) return {};
    grow_to(end);
    return before_[static_cast<std::size_t>(end)] - before_[static_cast<std::size_t>(begin)];
  }

 private:
  void grow_to(std::int64_t end) {
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

  std::vector<ExactPositionSums> before_ =
      std::vector<ExactPositionSums>(1);  // element t holds the sums over [0, t)
};

// Consecutive positions of a document, in one bucket and on one side of split_document()'s `first`.
struct PositionChunk {
  std::int64_t begin;
  std::int64_t end;
  bool first;  // whether the positions are below `first`
  std::int64_t bucket;

  std::int64_t rows() const { return end - begin; }
};

// Splits a document at multiples of kMomentChunkRows, at position `first` and at bucket boundaries.
constexpr std::int64_t kMomentChunkRows = 256;
inline std::vector<PositionChunk> split_document(std::int64_t length, std::int64_t first,
                                                 std::int64_t bucket_size, std::int64_t buckets) {
  std::vector<PositionChunk> chunks;
  for (std::int64_t begin = 0; begin < length;) {
    const auto bucket = std::min(begin / bucket_size, buckets - 1);
    auto end = std::min(length, (begin / kMomentChunkRows + 1) * kMomentChunkRows);
    if (begin < first) end = std::min(end, first);
    if (bucket < buckets - 1) end = std::min(end, (bucket + 1) * bucket_size);
    chunks.push_back({begin, end, begin < first, bucket});
    begin = end;
  }
  return chunks;
}

// Position sums over all documents: positions below `first`, the other positions, and each bucket.
struct DocumentPositionSums {
  ExactPositionSums first;
  ExactPositionSums body;
  std::vector<ExactPositionSums> buckets;
};
DocumentPositionSums sum_document_positions(std::span<const std::int64_t> lengths,
                                            std::int64_t first, std::int64_t bucket_size,
                                            std::int64_t buckets);

}  // namespace qkscope
