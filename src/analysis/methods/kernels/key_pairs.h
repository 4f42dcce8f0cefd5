// Pairs of keys of one text, and how strongly a query at each position prefers one of the two:
// p = Phi(z), plasticity 4 p (1 - p).
//
// z is computed at columns: positions at which the queries' mean and variance are modelled. At a
// point (one bin of queries) between two columns, z is linearly interpolated:
// z = z[c] + fraction (z[c + 1] - z[c]). A point at a column has fraction 0.
// ZScoreEvaluator gathers up to kTilePairs pairs, computes z (compute_z_scores()) at all columns
// that any of these pairs needs, and passes the result to a consumer. Invariants: points are
// ascending by bin and by column; keys stay valid until the next set_keys() or flush().
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "analysis/methods/kernels/query_model.h"
#include "analysis/methods/moments.h"
#include "base/core/numbers.h"
#include "base/numerics/normal.h"

namespace qkscope {

// Keys sorted by example, bin and position.
struct SortedKeys {
  std::vector<std::int64_t> row;       // (keys): row number in the head file
  std::vector<std::int32_t> bin;       // (keys)
  std::vector<std::int32_t> position;  // (keys)
  std::vector<std::int32_t> example;   // (keys): text number 0, 1, ... in order
  std::vector<std::int64_t> begin;     // (examples + 1): first key of each example
  std::vector<std::int64_t> text;      // (examples): text key (RowsView::example)

  std::int64_t example_count() const { return std::ssize(begin) - 1; }
};

// Returns the keys sorted by text, bin and position. `bin`, shape (rows): position bin of each key.
SortedKeys sort_keys_by_text_and_bin(const RowsView& keys, std::span<const std::int32_t> bin);

// View of consecutive keys of SortedKeys, centred, in the basis of the query model. Key pairs are
// compared in float32 and summed in float64: rounding is far below the variation between pairs.
struct KeyTile {
  std::int64_t first = 0;  // index into SortedKeys
  std::int64_t count = 0;
  std::int64_t dim = 0;
  const float* vectors = nullptr;  // (count, dim)

  KeyTile() = default;
  KeyTile(std::int64_t first_key, std::int64_t key_count, std::int64_t width, const float* rows)
      : first(first_key), count(key_count), dim(width), vectors(rows) {}
  // All keys, sorted.
  explicit KeyTile(const FloatMatrix& turned)
      : KeyTile(0, turned.rows, turned.cols, turned.row(0)) {}

  const float* row(std::int64_t key) const { return vectors + (key - first) * dim; }
  KeyTile slice(std::int64_t begin, std::int64_t end) const {
    return {begin, end - begin, dim, row(begin)};
  }
};

// Returns the keys in rotated coordinates and in the given order, scaled by a power of two to at
// most 1, so that squared differences stay within the range of float32. No comparison depends on
// the scale. Throws a bad-input error for a component above 1e15.
FloatMatrix rotate_and_scale_keys(const CentredRows& keys, const LinearQueryModel& model,
                                  std::span<const std::int64_t> order);

// Gaussian models of a query in rotated coordinates, one model per column.
struct QueryGaussians {
  Matrix mean;      // (columns, dim)
  Matrix variance;  // (columns, dim)
  // Lower Cholesky factor of each column's covariance; empty unless --covariance is full.
  std::vector<Matrix> cholesky;

  std::int64_t size() const { return mean.rows; }
};

// Query positions at which pairs of keys are compared, one per bin of queries.
struct QueryEvaluationPoints {
  std::vector<std::int32_t> bin;     // (points), ascending
  std::vector<double> position;      // (points): mean over the bin's queries
  std::vector<std::int32_t> column;  // (points), ascending: the model at or before the point
  std::vector<double> fraction;      // (points): interpolation weight of the next column

  void add_point(std::int32_t bin_number, double mean_position, std::int32_t column_number,
                 double column_fraction);
  std::int64_t size() const { return std::ssize(bin); }
};

struct KeyPair {
  std::int64_t first = 0;  // indices into SortedKeys
  std::int64_t second = 0;
};

inline constexpr std::int64_t kTilePairs = kMostLanes;

// Returns mean / sqrt(variance), or 0 if the variance is 0. Limits |z| to 1e4, where plasticity is
// already 0, so that differences of z scores stay finite.
inline float clamped_z_score(float mean, float variance) {
  const float least = 1e-8F * mean * mean;  // bounds |z| by 1e4; a clamp of z vectorises badly
  const float z = mean / std::sqrt(std::max(variance, least));
  return variance > 0 ? z : 0;
}

struct KeyPairScoreInput {
  KeyTile keys;
  const FloatMatrix& scores;  // (keys, columns), and kFewColumnsPadding floats after the last row
  const FloatMatrix& variances;  // (dim, columns and at least kFewColumnsPadding more)
};

// z scores of pairs of keys under Gaussian queries: z = m / sqrt(v) with m = mean . delta and
// v = sum_j variance_j delta_j^2, delta the difference of the two keys (rotated coordinates).
//
// The variances of all pairs at all columns (query models) are a matrix product: squared
// differences (pairs, dim) times variances (dim, columns). compute_z_scores() takes up to
// kTilePairs pairs, so that the squared differences stay in the L1 cache. Squared differences are
// not expanded into products of keys, which would cause cancellation for nearly equal keys.
// Invariant: columns [column, column + columns) exist in `scores` and `variances`, whose rows are
// padded by kFewColumnsPadding floats.
// Out-of-row access: reads up to kFewColumnsPadding floats after the last column of `scores` and
// `variances`, and writes up to kFewColumnsPadding floats after the last row of `z`. Callers must
// allocate this padding.
// A key pair with v = 0 (equal keys) has z = 0: the query has no preference.
// Writes z (pairs, columns) of up to kTilePairs pairs at columns [column, column + columns).
void compute_z_scores(const KeyPairScoreInput& model, std::span<const KeyPair> pairs,
                      std::int64_t column, std::int64_t columns, float* z);
// Reference implementation with plain loops, for the test of compute_z_scores().
void compute_z_scores_reference(const KeyPairScoreInput& model, std::span<const KeyPair> pairs,
                                std::int64_t column, std::int64_t columns, float* z);

// z scores of up to kTilePairs pairs of keys under consecutive Gaussian query models (columns), one
// SIMD lane per pair. Unused lanes are filled with a large z, which has plasticity 0.
struct KeyPairZScores {
  std::span<const KeyPair> pairs;
  std::int64_t first_column = 0;
  std::int64_t columns = 0;
  std::int64_t lanes = 0;
  const float* z = nullptr;  // (columns, lanes)
};

class ZScoreEvaluator {
 public:
  using ZScoreConsumer = std::function<void(const KeyPairZScores&)>;

  ZScoreEvaluator(const QueryGaussians& columns, ZScoreConsumer consumer);

  // Sets the keys that later calls to add_pair() refer to.
  void set_keys(const KeyTile& keys);
  // Sets the range [first, end) of columns (query models) at which pairs added later are evaluated.
  // All pairs of a tile are evaluated at the union of their ranges.
  void set_column_range(std::int64_t first, std::int64_t end) {
    first_column_ = first;
    end_column_ = end;
  }
  // Queues a pair; evaluates the queue once it holds kTilePairs pairs.
  void add_pair(KeyPair pair) {
    if (first_column_ >= end_column_) return;
    tile_first_ = waiting_.empty() ? first_column_ : std::min(tile_first_, first_column_);
    tile_end_ = waiting_.empty() ? end_column_ : std::max(tile_end_, end_column_);
    waiting_.push_back(pair);
    if (std::ssize(waiting_) == kTilePairs) flush();
  }
  void flush();
  bool empty() const { return waiting_.empty(); }

 private:
  void compute_z_scores_with_full_covariance();  // of the waiting pairs

  const QueryGaussians& queries_;
  KeyTile keys_;
  ZScoreConsumer consumer_;
  FloatMatrix means_;                  // (dim, columns and padding)
  FloatMatrix variances_;              // (dim, columns and padding)
  FloatMatrix scores_;                 // (keys and padding, columns): key . mean
  std::vector<FloatMatrix> factors_;   // (columns): (dim, dim and padding), Cholesky factors
  std::vector<FloatMatrix> whitened_;  // (columns): (keys, dim) key times Cholesky factor
  std::int64_t first_column_ = 0;
  std::int64_t end_column_;
  std::int64_t tile_first_ = 0;  // columns of the waiting pairs
  std::int64_t tile_end_ = 0;
  std::vector<KeyPair> waiting_;
  std::vector<float> by_pair_;  // (kTilePairs, columns and padding): z scores
  std::vector<float> by_lane_;  // (columns, lanes): z scores
};

// Keys [begin, end) of one text, from which pairs are formed.
struct KeyRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t key_pair_count() const { return (end - begin) * (end - begin - 1) / 2; }
  // Returns the pair of keys with number `index`, counting pairs i < j in the order (0, 1), (0, 2),
  // (1, 2), (0, 3), ...
  KeyPair nth_pair(std::int64_t index) const;
};

// Keys that are eligible at a query point: those in earlier bins and, with a sliding window, after
// position - window. Both ends of the range ascend with the point, so a pair of keys i < j of one
// text is eligible at points [first_eligible_point(j), end_of_eligible_points(i)).
class EligibleKeys {
 public:
  EligibleKeys(const SortedKeys& keys, const QueryEvaluationPoints& points,
               std::optional<std::int32_t> window);

  KeyRange key_range(std::int64_t example, std::int64_t point) const {
    const KeyRange32& range = ranges_[as_index(example * points_ + point)];
    return {range.begin, range.end};
  }
  std::int64_t first_eligible_point(std::int64_t key) const { return first_[as_index(key)]; }
  std::int64_t end_of_eligible_points(std::int64_t key) const { return end_[as_index(key)]; }

 private:
  struct KeyRange32 {  // a KeyRange in half the memory
    std::int32_t begin = 0;
    std::int32_t end = 0;
  };

  std::int64_t points_;
  std::vector<KeyRange32> ranges_;   // (examples, points)
  std::vector<std::int64_t> first_;  // (keys)
  std::vector<std::int64_t> end_;    // (keys)
};

}  // namespace qkscope
