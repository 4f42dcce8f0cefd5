// Moments of q, k and v vectors (group A): empty accumulators, and merging by the formulas of Chan,
// Golub and LeVeque (second order) and Pebay (third, fourth). qkscope/statistics.h has the fields.
#pragma once

#include <cstdint>
#include <vector>

#include "qkscope/statistics.h"

namespace qkscope {

// Dimensions of the moment accumulators of a layer.
struct MomentShape {
  std::int64_t heads = 0;
  std::int64_t dim = 0;
  std::int64_t pairs = 0;  // rotary pairs whose L2 norm is averaged; 0 disables it
  std::int64_t buckets = 0;
  bool bucket_covariance = false;

  bool operator==(const MomentShape&) const = default;
};

// Which moments of a q, k or v buffer to accumulate. Rows with position < first form one set, all
// others the second. A bucket holds bucket_size positions; the last one also all later positions.
struct MomentRequest {
  MomentShape shape;
  std::int64_t first = 0;
  std::int64_t bucket_size = 1;
  bool interleaved = false;             // rotary pairs (2i, 2i + 1) instead of (i, i + pairs)
  std::vector<float>* shift = nullptr;  // CUDA only: offset subtracted before products; empty until
                                        // the first batch fixes it
};

// Returns the moments of zero rows: min is +infinity, max is -infinity. Inline because the CUDA
// module uses these functions without linking the library.
inline HeadMoments empty_moments(const MomentShape& shape) {
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

inline BucketMoments empty_buckets(const MomentShape& shape) {
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

inline LayerMoments empty_layer(const MomentShape& shape) {
  return {empty_moments(shape), empty_moments(shape), empty_buckets(shape)};
}

// Merges `part` into `into`; both must have the same shape. Heads are merged in parallel; the
// result does not depend on the number of threads.
void merge(HeadMoments& into, const HeadMoments& part);
void merge(BucketMoments& into, const BucketMoments& part);
void merge(LayerMoments& into, const LayerMoments& part);
void merge(PositionSums& into, const PositionSums& part);

}  // namespace qkscope
