// Moments (group A): empty ones, and merging by Chan, Golub, LeVeque and Pebay. What they are is in
// qkscope/statistics.h.
#pragma once

#include <cstdint>
#include <vector>

#include "qkscope/statistics.h"

namespace qkscope {

struct MomentShape {
  std::int64_t heads = 0;
  std::int64_t dim = 0;
  std::int64_t pairs = 0;  // rotary pairs whose length is averaged; 0: none
  std::int64_t buckets = 0;
  bool bucket_covariance = false;

  bool operator==(const MomentShape&) const = default;
};

// Group A: what is added up of a buffer. Rows of a document with position < first are one set, the
// others another; buckets hold bucket_size positions, the last one all that follow.
struct MomentRequest {
  MomentShape shape;
  std::int64_t first = 0;
  std::int64_t bucket_size = 1;
  bool interleaved = false;             // rotary pairs (2i, 2i + 1) instead of (i, i + pairs)
  std::vector<float>* shift = nullptr;  // a GPU's own: what it takes off before it multiplies;
                                        // empty until it is fixed, then kept for the whole run
};

// No rows. min is +infinity, max -infinity. Inline: the GPU's module makes them too.
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

// into = into and part together, both of the same shape. One head after another may be merged by
// threads of their own: the result is the same.
void merge(HeadMoments& into, const HeadMoments& part);
void merge(BucketMoments& into, const BucketMoments& part);
void merge(LayerMoments& into, const LayerMoments& part);
void merge(PositionSums& into, const PositionSums& part);

}  // namespace qkscope
