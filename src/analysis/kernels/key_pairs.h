// All pairs of keys of one example, and how strongly a query at each position prefers one of the
// two: p = Phi(z), plasticity 4 p (1 - p). Along the drift z is a line over position.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "analysis/kernels/query_model.h"
#include "analysis/moments.h"

namespace qkscope {

// Keys in rotated coordinates, sorted by example, bin and position.
struct SortedKeys {
  Matrix vectors;                      // (keys, dim), centred
  std::vector<std::int32_t> bin;       // (keys)
  std::vector<std::int32_t> position;  // (keys)
  std::vector<std::int32_t> example;   // (keys): 0, 1, ... in order
  std::vector<std::int64_t> begin;     // (examples + 1): first key of each example
  std::vector<std::int64_t> text;      // (examples): what Rows::example calls it

  std::int64_t examples() const { return std::ssize(begin) - 1; }
};

// `bin` (rows): the position bin of each key.
SortedKeys sort_keys(const CentredRows& keys, const QueryModel& model,
                     std::span<const std::int32_t> bin);

// Models of a query: mean and variance in rotated coordinates.
struct QueryColumns {
  Matrix mean;                       // (columns, dim): at the column's own position
  Matrix variance;                   // (columns, dim)
  double drift = 0;                  // of the first coordinate, per token
  std::vector<std::int32_t> bucket;  // (columns): whose queries they are; empty: all queries

  std::int64_t size() const { return mean.rows; }
};

// Where the pairs are compared: one point per bin of queries.
struct QueryPoints {
  std::vector<std::int32_t> bin;     // (points), ascending
  std::vector<double> position;      // (points): mean over the bin's queries
  std::vector<std::int32_t> column;  // (points): the model of its queries
  std::vector<double> shift;         // (points): tokens from the column's own position

  // The next point, in ascending order.
  void add(std::int32_t bin_number, double mean_position, std::int32_t column_number,
           double column_position);
  std::int64_t size() const { return std::ssize(bin); }
  // The first point whose queries all come after keys of `key_bin`.
  std::int64_t after(std::int32_t key_bin) const;
  // (points): the first point behind each that is of another column.
  std::vector<std::int32_t> column_ends() const;
};

struct Pair {
  std::int64_t first = 0;  // indices into SortedKeys
  std::int64_t second = 0;
};

// A block of pairs: z = start + slope * shift for a range of columns.
struct PairLines {
  std::span<const Pair> pairs;
  std::int64_t first_column = 0;
  std::int64_t columns = 0;
  std::span<const double> start;  // (pairs, columns)
  std::span<const double> slope;  // (pairs, columns)
};

class PairEvaluator {
 public:
  using Sink = std::function<void(const PairLines&)>;

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

  const SortedKeys& keys_;
  Sink sink_;
  Matrix scores_;              // (keys, columns): key . mean
  std::vector<double> moves_;  // (keys): how a score changes per token
  std::int64_t first_column_ = 0;
  std::int64_t end_column_ = 0;
  std::vector<Pair> waiting_;
  Matrix weights_;             // (dim, columns + 7): the columns' variances
  std::vector<double> start_;  // (pairs, columns)
  std::vector<double> slope_;  // (pairs, columns)
};

}  // namespace qkscope
