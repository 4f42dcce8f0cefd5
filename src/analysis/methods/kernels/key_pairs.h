// All pairs of keys of one example, and how strongly a query at each position prefers one of the
// two: p = Phi(z), plasticity 4 p (1 - p). Along the drift z is a line over position.
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
  std::vector<std::int64_t> row;       // (keys): of the rows they come from
  std::vector<std::int32_t> bin;       // (keys)
  std::vector<std::int32_t> position;  // (keys)
  std::vector<std::int32_t> example;   // (keys): 0, 1, ... in order
  std::vector<std::int64_t> begin;     // (examples + 1): first key of each example
  std::vector<std::int64_t> text;      // (examples): what Rows::example calls it

  std::int64_t examples() const { return std::ssize(begin) - 1; }
};

// `bin` (rows): the position bin of each key.
SortedKeys sort_keys(const Rows& keys, std::span<const std::int32_t> bin);

// Neighbours among sorted keys, in rotated coordinates.
struct KeyTile {
  std::int64_t first = 0;  // key
  Matrix vectors;          // (keys, dim), centred
  // (keys): key . mean query at position 0; empty: not known. The score of queries of all buckets.
  std::vector<double> score;

  const double* row(std::int64_t key) const { return vectors.row(key - first); }
};

// Keys [begin, end) become the block.
void take_block(const CentredRows& keys, const QueryModel& model, const SortedKeys& sorted,
                std::int64_t begin, std::int64_t end, KeyTile& block);

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

// A few pairs that stand together, at columns [column, column + stride).
struct PairTile {
  std::int64_t first;  // pair
  std::int64_t count;
  std::int64_t column;
  std::int64_t stride;  // even
  std::int64_t offset;  // of its numbers among those of all tiles
};

// What becomes of a few pairs at a range of columns.
struct PairLines {
  std::span<const Pair> pairs;
  std::int64_t first_column = 0;
  std::int64_t columns = 0;  // those wanted, and some beside them that mean nothing
  // (pairs, columns) with z = start + slope * shift; plasticities where those are wanted.
  std::span<const double> start;
  std::span<const double> slope;
};

class PairEvaluator {
 public:
  using Sink = std::function<void(const PairLines&)>;
  enum class Wanted { lines, plasticities };  // the latter at the columns' own positions

  PairEvaluator(const QueryColumns& columns, Sink sink, Wanted wanted = Wanted::lines);

  // Pairs are of these keys from now on; the block must stay until the next, or the last flush().
  void set_keys(const KeyTile& keys);
  // Columns [first, end) apply to pairs that are added from now on.
  void set_columns(std::int64_t first, std::int64_t end) { columns_ = {first, end}; }
  // Pairs wait until a block is full, or for flush().
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

  const KeyTile* keys_ = nullptr;
  Sink sink_;
  Wanted wanted_;
  Matrix means_;               // (dim, columns and a few more)
  double drift_;               // of the first coordinate, per token
  bool all_queries_;           // a column that is not of one bucket
  Matrix scores_;              // (keys and a few rows more, columns): key . mean
  std::vector<double> moves_;  // (keys): how a score changes per token
  Matrix weights_;             // (dim, columns and a few more): the columns' variances
  Columns columns_;
  std::vector<Pair> waiting_;
  std::vector<Columns> waiting_columns_;  // (waiting)
  std::vector<PairTile> tiles_;
  std::vector<double> start_;  // (tiles, pairs, columns)
  std::vector<double> slope_;  // likewise
};

}  // namespace qkscope
