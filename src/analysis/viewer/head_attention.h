// Attention of one head over a text, from its queries and keys: single rows, statistics over
// sampled queries, and tiles of the (query, key) matrix at every zoom level.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "analysis/viewer/query_key_store.h"

namespace qkscope {

// One query of a head. Scores and pattern are bit-identical to `qkscope trace` on the CPU.
struct AttentionRow {
  std::int64_t first_key = 0;  // first visible key; the last one is the query itself
  std::vector<float> scores;   // (visible keys)
  std::vector<float> pattern;  // (visible keys)
  double log_sum_exp = 0;      // of the scores, a learned sink included
  double entropy = 0;          // nats, of the visible keys
  double first_token = 0;      // attention on position 0 (the attention sink); 0 if invisible
  double distance = 0;         // mean distance to the keys, weighted by attention
  // Score by rotary frequency before the soft cap, (rotary pairs) or empty on NoPE layers: mean
  // over the visible keys, weighted by attention and unweighted.
  std::vector<float> attended_by_frequency;
  std::vector<float> mean_by_frequency;
};

// Statistics of a head as means over sampled queries.
struct HeadStatistics {
  static constexpr const char* kNames[] = {"entropy", "sink_0",        "prev",
                                           "self",    "distance_mean", "top1"};
  static constexpr std::size_t kCount = std::size(kNames);
  float values[kCount] = {};
};

enum class CellValue { largest, sum };
inline void accumulate_in_cell(float& cell, float value, CellValue kind) {
  cell = kind == CellValue::largest ? std::max(cell, value) : cell + value;
}

// A square of cells. Cell (i, j) covers queries [first_query + i * width, ...) and keys
// [first_key + j * width, ...), with width = 2^level tokens.
struct Tile {
  std::vector<float> cells;  // (kTileCells, kTileCells); 0 above the diagonal and beyond the text
  bool exact = true;         // false: a preview from one query per row of cells
};
inline constexpr std::int64_t kTileCells = 256;
inline constexpr std::int64_t kOverviewCells = 2048;  // most cells per side of an overview

// Memory of one head with an overview: packed keys, log-sum-exp and cells.
constexpr std::int64_t head_attention_bytes(std::int64_t rows, std::int64_t d_head) {
  return 4 * (rows * (d_head + 1) + 2 * kOverviewCells * kOverviewCells);
}

using KeyRange = std::pair<std::int64_t, std::int64_t>;  // [first, second)

// Attention of one head. Not thread-safe.
class HeadAttention {
 public:
  HeadAttention(QueryKeyStore& store, std::int64_t layer, std::int64_t head);

  AttentionRow row(std::int64_t query);
  HeadStatistics statistics(std::int64_t samples);  // over evenly spaced queries

  // Tile (row, column) of a zoom level. Levels from base_level() on are read from the overview and
  // are a preview until extend_overview() has reached the end; finer tiles are always exact.
  Tile tile(int level, std::int64_t row, std::int64_t column, CellValue value);
  // Continues the overview for about `seconds`. Returns the share of the text that is done.
  double extend_overview(double seconds);
  int base_level() const { return base_level_; }
  std::int64_t cells_at(int level) const { return ((rows() - 1) >> level) + 1; }  // per side
  // Returns (side, side) overview cells from cell (row, column) on; level is at least base_level().
  std::vector<float> overview(int level, std::int64_t row, std::int64_t column, std::int64_t side,
                              CellValue value) const;

 private:
  // Queries first, first + step, ...
  struct Queries {
    std::int64_t first;
    std::int64_t step;
    std::int64_t count;
    std::int64_t at(std::int64_t i) const { return first + i * step; }
  };
  // Called on several threads: index of a query, its attention on a range of keys, and the range.
  using RowVisitor = std::function<void(std::int64_t, std::span<const float>, KeyRange)>;

  std::int64_t rows() const { return store_.rows(); }
  // Points q_ and k_ at the vectors. They are valid while the returned object exists; a store that
  // recomputes layers may free them afterwards.
  [[nodiscard]] HeadVectors load();
  void pack_key_values();
  void scores(const Queries& queries, std::int64_t begin, std::int64_t end, float* out) const;
  // Replaces the scores of one query by its attention to the visible keys of `keys` and returns
  // their range. `row` starts at key `origin`, which must be the first visible key if the
  // log-sum-exp of the query has not been computed yet.
  KeyRange scores_to_attention(std::int64_t query, float* row, std::int64_t origin, KeyRange keys);
  // Visits the attention of the queries to keys [begin, end). Rows of queries without a stored
  // log-sum-exp are computed over all keys.
  void visit_keys(const Queries& queries, std::int64_t begin, std::int64_t end,
                  const RowVisitor& visit);
  void add_frequencies(std::int64_t query, AttentionRow& row) const;
  // Computes a tile from scores; with `preview`, from one query per row of cells.
  Tile computed_tile(int level, std::int64_t row, std::int64_t column, CellValue value,
                     bool preview);

  QueryKeyStore& store_;
  std::int64_t layer_;
  std::int64_t head_;
  const float* q_ = nullptr;  // (rows, d_head), valid during a call
  const float* k_ = nullptr;  // (rows, d_head), valid during a call
  float scale_;
  float softcap_;
  std::int64_t window_;
  std::int64_t chunk_;
  std::span<const float> sink_;     // the learned sink of the head, or empty
  std::vector<float> packed_keys_;  // keys as the right operand of gemm.h
  std::vector<float> log_sum_exp_;  // (rows); NaN: not computed yet
  int base_level_ = 0;              // the overview has at most kOverviewCells per side
  std::int64_t query_block_ = 0;    // queries per task: whole rows of cells, so that no two tasks
                                    // share a cell
  std::vector<float> largest_;      // (cells, cells) of base_level_
  std::vector<float> sum_;          // (cells, cells) of base_level_
  std::int64_t overview_rows_ = 0;  // queries that the overview contains
};

}  // namespace qkscope
