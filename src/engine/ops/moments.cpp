#include "engine/statistics/moments.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/thread_pool.h"
#include "base/numerics/products.h"
#include "engine/ops/statistics.h"

namespace qkscope {
namespace {

class HeadMomentAccumulator {
 public:
  // `shape` describes one head.
  HeadMomentAccumulator(ConstTensorView x, const Sequence& sequence, const MomentRequest& request,
                        const MomentShape& shape, std::int64_t head)
      : request_(request),
        shape_(shape),
        stride_(x.stride(0)),
        values_(x.data<float>() + sequence.begin * x.stride(0) + head * x.stride(1)),
        sums_(empty_layer_moments(shape_)),
        part_(empty_moments(shape_)),
        gram_(shape_.dim, shape_.dim) {}

  void add(const PositionChunk& chunk, const PositionSums& positions) {
    part_ = empty_moments(shape_);
    part_.positions = positions;
    load(chunk);
    subtract_channel_means(chunk);
    add_powers(chunk);
    add_products(chunk);
    merge(chunk.first ? sums_.first : sums_.body, part_);
    add_to_bucket(chunk);
  }

  const LayerMoments& sums() const { return sums_; }
  bool all_values_finite() const { return finite_; }

 private:
  double* row(std::int64_t r) { return rows_.data() + r * shape_.dim; }

  // Converts rows to float64 and accumulates the statistics of uncentred values.
  void load(const PositionChunk& chunk) {
    rows_.resize(as_index(chunk.rows() * shape_.dim));
    double norms = 0;
    for (std::int64_t r = 0; r < chunk.rows(); ++r) {
      load_row(values_ + (chunk.begin + r) * stride_, row(r));
      const double norm = std::sqrt(std::inner_product(row(r), row(r) + shape_.dim, row(r), 0.0));
      norms += norm;
      part_.norm_max[0] = std::max(part_.norm_max[0], static_cast<float>(norm));
      add_pairs(row(r));
    }
    finite_ = finite_ && std::isfinite(norms);
    const auto n = static_cast<double>(chunk.rows());
    part_.norm_mean[0] = norms / n;
    for (auto& mean : part_.mean) mean /= n;
    for (auto& pair : part_.pair_abs) pair /= n;
  }

  void load_row(const float* from, double* to) {
    double* const mean = part_.mean.data();
    float* const low = part_.min.data();
    float* const high = part_.max.data();
    for (std::int64_t j = 0; j < shape_.dim; ++j) {
      to[j] = from[j];
      mean[j] += from[j];
      low[j] = std::min(low[j], from[j]);
      high[j] = std::max(high[j], from[j]);
    }
  }

  void add_pairs(const double* x) {
    const auto pairs = shape_.pairs;
    x += request_.first_rotated;
    for (std::int64_t i = 0; i < pairs; ++i) {
      const double a = request_.interleaved ? x[2 * i] : x[i];
      const double b = request_.interleaved ? x[2 * i + 1] : x[i + pairs];
      part_.pair_abs[as_index(i)] += std::sqrt(a * a + b * b);
    }
  }

  void subtract_channel_means(const PositionChunk& chunk) {
    for (std::int64_t r = 0; r < chunk.rows(); ++r)
      for (std::int64_t j = 0; j < shape_.dim; ++j) row(r)[j] -= part_.mean[as_index(j)];
  }

  void add_powers(const PositionChunk& chunk) {
    for (std::int64_t r = 0; r < chunk.rows(); ++r) {
      const auto position = static_cast<double>(chunk.begin + r);
      const double t = position - part_.positions.t_mean;
      const double u = std::log2(position + 1.0) - part_.positions.u_mean;
      add_row_powers(row(r), t, u);
    }
  }

  void add_row_powers(const double* x, double t, double u) {
    double* const ct = part_.ct.data();
    double* const cu = part_.cu.data();
    double* const m3 = part_.m3.data();
    double* const m4 = part_.m4.data();
    for (std::int64_t j = 0; j < shape_.dim; ++j) {
      const double square = x[j] * x[j];
      ct[j] += x[j] * t;
      cu[j] += x[j] * u;
      m3[j] += square * x[j];
      m4[j] += square * square;
    }
  }

  void add_products(const PositionChunk& chunk) {
    std::fill(gram_.data.begin(), gram_.data.end(), 0.0);
    add_gram(rows_.data(), chunk.rows(), gram_);
    double* out = part_.m2.data();
    for (std::int64_t i = 0; i < shape_.dim; ++i)
      out = std::copy(gram_.row(i) + i, gram_.row(i) + shape_.dim, out);
  }

  void add_to_bucket(const PositionChunk& chunk) {
    auto part = empty_bucket_moments(shape_);
    part.n[as_index(chunk.bucket)] = chunk.rows();
    for (std::int64_t j = 0; j < shape_.dim; ++j) {
      const auto i = as_index(chunk.bucket * shape_.dim + j);
      part.mean[i] = part_.mean[as_index(j)];
      part.m2[i] = gram_(j, j);
    }
    if (shape_.bucket_covariance)
      std::copy(part_.m2.begin(), part_.m2.end(),
                part.cov.begin() + chunk.bucket * triangle_size(shape_.dim));
    merge(sums_.buckets, part);
  }

  const MomentRequest& request_;
  MomentShape shape_;
  std::int64_t stride_;
  const float* values_;
  LayerMoments sums_;
  HeadMoments part_;          // moments of the current chunk
  std::vector<double> rows_;  // (rows of the chunk, dim) centred
  Matrix gram_;               // (dim, dim)
  bool finite_ = true;
};

// Copies the moments of one head into the arrays of all heads.
template <typename T>
void copy_head(const std::vector<T>& one, std::int64_t head, std::vector<T>& all) {
  std::copy(one.begin(), one.end(), all.begin() + head * std::ssize(one));
}

void copy_head(const HeadMoments& one, std::int64_t head, HeadMoments& all) {
  using M = HeadMoments;
  all.positions = one.positions;
  for (const auto field :
       {&M::mean, &M::m2, &M::ct, &M::cu, &M::m3, &M::m4, &M::pair_abs, &M::norm_mean})
    copy_head(one.*field, head, all.*field);
  for (const auto field : {&M::min, &M::max, &M::norm_max}) copy_head(one.*field, head, all.*field);
}

void copy_head(const LayerMoments& one, std::int64_t head, LayerMoments& all) {
  copy_head(one.first, head, all.first);
  copy_head(one.body, head, all.body);
  all.buckets.n = one.buckets.n;
  copy_head(one.buckets.mean, head, all.buckets.mean);
  copy_head(one.buckets.m2, head, all.buckets.m2);
  copy_head(one.buckets.cov, head, all.buckets.cov);
}

}  // namespace

DocumentMoments compute_document_moments(ConstTensorView x, const Sequence& sequence,
                                         const MomentRequest& request) {
  const auto heads = request.shape.heads;
  QKSCOPE_ASSERT(x.dim(1) == heads && x.dim(2) == request.shape.dim);
  DocumentMoments result{empty_layer_moments(request.shape), {}};
  const auto chunks =
      split_document(sequence.length, request.first, request.bucket_size, request.shape.buckets);
  PositionPrefixSums table;
  std::vector<PositionSums> positions;
  for (const auto& chunk : chunks)
    positions.push_back(table.sums_over(chunk.begin, chunk.end).to_position_sums());
  auto one_head = request.shape;
  one_head.heads = 1;
  std::vector<LayerMoments> sums(as_index(heads));
  std::vector<char> finite(as_index(heads));
  parallel_for(heads, [&](std::int64_t head) {
    HeadMomentAccumulator head_sums(x, sequence, request, one_head, head);
    for (std::size_t i = 0; i < chunks.size(); ++i) head_sums.add(chunks[i], positions[i]);
    sums[as_index(head)] = head_sums.sums();
    finite[as_index(head)] = head_sums.all_values_finite() ? 1 : 0;
  });
  for (std::int64_t head = 0; head < heads; ++head) {
    copy_head(sums[as_index(head)], head, result.moments);
    if (finite[as_index(head)] == 0 && !result.bad_head) result.bad_head = head;
  }
  return result;
}

}  // namespace qkscope
