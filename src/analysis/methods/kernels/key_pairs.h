// Pairs of keys of one text, and how strongly a query at each position prefers one of the two:
// p = Phi(z), plasticity 4 p (1 - p).
//
// z is computed at columns: positions at which the queries' mean and variance are modelled. A point
// (one bin of queries) between two columns takes z on the line between them:
// z = z[c] + fraction (z[c + 1] - z[c]). A point at a column has fraction 0.
// PairEvaluator gathers pairs into blocks of kBlock, lays neighbours with the same range of columns
// into tiles (pair_kernels.h) and hands z and its differences to a consumer.
// Invariants: points are ascending by bin and by column; keys of a tile stay valid until the next
// set_keys() or flush(). A tile has an even number of columns: numbers of columns that nobody asked
// for are written, and never read.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "analysis/methods/kernels/query_model.h"
#include "analysis/methods/moments.h"

namespace qkscope {

// Keys sorted by example, bin and position.
struct SortedKeys {
  std::vector<std::int64_t> row;       // (keys): row number in the head file
  std::vector<std::int32_t> bin;       // (keys)
  std::vector<std::int32_t> position;  // (keys)
  std::vector<std::int32_t> example;   // (keys): text number 0, 1, ... in order
  std::vector<std::int64_t> begin;     // (examples + 1): first key of each example
  std::vector<std::int64_t> text;      // (examples): text key (Rows::example)

  std::int64_t examples() const { return std::ssize(begin) - 1; }
};

// `bin` (rows): the position bin of each key.
SortedKeys sort_keys(const Rows& keys, std::span<const std::int32_t> bin);

// Borrows consecutive sorted keys in rotated coordinates, centred. Pairs are compared in float32
// and summed in float64: the rounding of one pair is far below the spread over pairs.
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
  // Keys [begin, end).
  KeyTile part(std::int64_t begin, std::int64_t end) const {
    return {begin, end - begin, dim, row(begin)};
  }
};

// Gaussian models of a query, one per column, in rotated coordinates.
struct QueryColumns {
  Matrix mean;      // (columns, dim)
  Matrix variance;  // (columns, dim)
  // Full covariances, only with --covariance full: lower Cholesky factors, one per column.
  std::vector<Matrix> cholesky;

  std::int64_t size() const { return mean.rows; }
};

// Where the pairs are compared: one point per bin of queries.
struct QueryPoints {
  std::vector<std::int32_t> bin;     // (points), ascending
  std::vector<double> position;      // (points): mean over the bin's queries
  std::vector<std::int32_t> column;  // (points), ascending: the model at or before the point
  std::vector<double> fraction;      // (points): of the way to the next column

  void add(std::int32_t bin_number, double mean_position, std::int32_t column_number,
           double column_fraction);
  // (points and padding): fraction as plasticity_along() reads it.
  std::vector<float> shifts() const;
  std::int64_t size() const { return std::ssize(bin); }
  // The first point whose queries all come after keys of `key_bin`.
  std::int64_t after(std::int32_t key_bin) const;
  // (points): the first later point that has another column.
  std::vector<std::int32_t> column_ends() const;
};

struct Pair {
  std::int64_t first = 0;  // indices into SortedKeys
  std::int64_t second = 0;
};

// Consecutive pairs at columns [column, column + stride).
struct PairTile {
  std::int64_t first;  // pair
  std::int64_t count;
  std::int64_t column;
  std::int64_t stride;  // even
  std::int64_t offset;  // of the tile's numbers in the output
};

// z of a few pairs at a range of columns.
struct PairLines {
  std::span<const Pair> pairs;
  std::int64_t first_column = 0;
  std::int64_t columns = 0;      // stride: at least the columns asked for
  std::span<const float> start;  // (pairs, columns): z
  std::span<const float> slope;  // (pairs, columns): z of the next column - z
};

class PairEvaluator {
 public:
  using Consumer = std::function<void(const PairLines&)>;

  PairEvaluator(const QueryColumns& columns, Consumer consumer);

  // Takes following pairs from these keys.
  void set_keys(const KeyTile& keys);
  // Evaluates following pairs at columns [first, end).
  void set_columns(std::int64_t first, std::int64_t end) { columns_ = {first, end}; }
  // Queues a pair; evaluates the queue once it holds kBlock pairs.
  void add(Pair pair) {
    if (columns_.first >= columns_.end) return;
    waiting_.push_back(pair);
    waiting_columns_.push_back(columns_);
    if (waiting_.size() == kBlock) flush();
  }
  void flush();

 private:
  static constexpr std::size_t kBlock = 128;

  struct Columns {
    std::int64_t first = 0;
    std::int64_t end = 0;

    bool operator==(const Columns&) const = default;
  };

  void lay_tiles();
  void z_of_full_covariance(const PairTile& tile);

  const QueryColumns& queries_;
  KeyTile keys_;
  Consumer consumer_;
  FloatMatrix means_;                  // (dim, columns and padding)
  FloatMatrix variances_;              // (dim, columns and padding)
  FloatMatrix scores_;                 // (keys and padding, columns): key . mean
  std::vector<FloatMatrix> factors_;   // (columns): (dim, dim and padding), Cholesky factors
  std::vector<FloatMatrix> whitened_;  // (columns): (keys, dim) key times Cholesky factor
  Columns columns_;
  std::vector<Pair> waiting_;
  std::vector<Columns> waiting_columns_;  // (waiting)
  std::vector<PairTile> tiles_;
  std::vector<float> start_;  // (tiles, pairs, columns)
  std::vector<float> slope_;  // (tiles, pairs, columns)
};

}  // namespace qkscope
