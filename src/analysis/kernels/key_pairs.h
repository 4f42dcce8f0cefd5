// All pairs of keys of one example, and how strongly a query at each position bucket prefers one of
// the two: p = Phi(m / sqrt(v)), plasticity 4 p (1 - p).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "analysis/kernels/query_model.h"
#include "analysis/moments.h"

namespace qkscope {

// Keys in rotated coordinates, sorted by example, bucket and position.
struct SortedKeys {
  Matrix vectors;                      // (keys, dim), centred
  std::vector<std::int32_t> bucket;    // (keys)
  std::vector<std::int32_t> position;  // (keys)
  std::vector<std::int32_t> example;   // (keys): 0, 1, ... in order
  std::vector<std::int64_t> begin;     // (examples + 1): first key of each example
  std::vector<std::int64_t> text;      // (examples): what Rows::example calls it

  std::int64_t examples() const { return std::ssize(begin) - 1; }
};

SortedKeys sort_keys(const CentredRows& keys, const QueryModel& model);

// One column per query bucket: a query's mean and variance at the bucket's mean position.
struct QueryColumns {
  std::vector<std::int32_t> bucket;  // (columns), ascending
  std::vector<double> position;      // (columns)
  Matrix mean;                       // (columns, dim), or (1, dim): at position 0
  double drift = 0;                  // of the first coordinate, per token, where the mean is common
  Matrix variance;                   // (columns, dim), or (1, dim): the same for all

  std::int64_t size() const { return std::ssize(bucket); }
  // The first column whose queries all come after keys of `key_bucket`.
  std::int64_t after(std::int32_t key_bucket) const;
};

struct Pair {
  std::int64_t first = 0;  // indices into SortedKeys
  std::int64_t second = 0;
};

// Plasticity of a block of pairs for a range of columns.
struct PairBlock {
  std::span<const Pair> pairs;
  std::int64_t first_column = 0;
  std::int64_t columns = 0;
  std::span<const double> plasticity;  // (pairs, columns)
};

class PairEvaluator {
 public:
  using Sink = std::function<void(const PairBlock&)>;

  PairEvaluator(const SortedKeys& keys, const QueryColumns& columns, Sink sink);

  // Pairs wait until a block is full; columns [first, end) apply to all pairs added until flush().
  void set_columns(std::int64_t first, std::int64_t end);
  void add(Pair pair) {
    waiting_.push_back(pair);
    if (waiting_.size() == kBlock) flush();
  }
  void flush();

 private:
  static constexpr std::size_t kBlock = 128;

  // Fills the variances of up to eight waiting pairs for all columns.
  void take_variances(std::span<const Pair> pairs, double* variance);

  const SortedKeys& keys_;
  const Matrix& weights_;  // (columns or 1, dim): the queries' variances
  Sink sink_;
  Matrix scores_;  // (keys, columns): key . mean, so that m is a difference of two scores
  std::int64_t first_column_ = 0;
  std::int64_t end_column_ = 0;
  std::vector<Pair> waiting_;
  std::vector<double> squares_;   // (dim, 8): squared differences of eight pairs
  std::vector<double> sums_;      // (columns, 8): their weighted sums
  std::vector<double> variance_;  // (pairs, columns)
};

}  // namespace qkscope
