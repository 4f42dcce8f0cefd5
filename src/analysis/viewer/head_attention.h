// Attention of one head over a text, computed from queries and keys: single rows, statistics over
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

// Attention of one query. Scores and pattern are bit-identical to `qkscope trace` on the CPU.
struct AttentionRow {
  std::int64_t first_key = 0;  // first visible key; the last one is the query itself
  std::vector<float> scores;   // (visible keys)
  std::vector<float> pattern;  // (visible keys)
  double log_sum_exp = 0;      // of the scores, a learned sink included
  double entropy = 0;          // nats, of the visible keys
  double first_token = 0;      // attention on position 0 (the attention sink); 0 if invisible
  double distance = 0;         // mean distance to the keys, weighted by attention
  // Mean score by rotary frequency over the visible keys, before the soft cap, weighted by
  // attention or unweighted. Shape (rotary pairs); empty on NoPE layers.
  std::vector<float> attended_by_frequency;
  std::vector<float> mean_by_frequency;
};

// Statistics of a head, averaged over sampled queries.
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

// A square tile of cells. Cell (i, j) covers queries [first_query + i * width, ...) and keys
// [first_key + j * width, ...), where width = 2^level tokens.
struct Tile {
  std::vector<float> cells;  // (kTileCells, kTileCells); 0 above the diagonal and beyond the text
  bool exact = true;         // false: a preview from one query per row of cells
};
inline constexpr std::int64_t kTileCells = 256;
inline constexpr std::int64_t kOverviewCells = 2048;  // most cells per side of an overview

// Bytes used by one head with an overview: packed keys, log-sum-exp and cells.
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

  // Returns tile (row, column) of a zoom level. From base_level() on, tiles come from the overview
  // and are previews until extend_overview() has reached the end; finer tiles are always exact.
  Tile tile(int level, std::int64_t row, std::int64_t column, CellValue value);
  // Continues the overview for about `seconds`. Returns the fraction of the text that is done.
  double extend_overview(double seconds);
  int base_level() const { return base_level_; }
  std::int64_t cells_at(int level) const { return ((rows() - 1) >> level) + 1; }  // per side
  // Returns (side, side) overview cells starting at cell (row, column); level >= base_level().
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
  // Receives a query index, its attention to a range of keys, and the range; must be thread-safe.
  using RowVisitor = std::function<void(std::int64_t, std::span<const float>, KeyRange)>;

  std::int64_t rows() const { return store_.rows(); }
  // Points q_ and k_ to the vectors, which stay valid while the returned object exists. A store
  // that recomputes layers may free them afterwards.
  [[nodiscard]] HeadVectors load();
  void pack_key_values();
  void scores(const Queries& queries, std::int64_t begin, std::int64_t end, float* out) const;
  // Replaces the scores of one query with its attention to the visible keys in `keys` and returns
  // their range. `row` starts at key `origin`, which must be the first visible key unless the
  // log-sum-exp of the query is already known.
  KeyRange scores_to_attention(std::int64_t query, float* row, std::int64_t origin, KeyRange keys);
  // Calls `visit` with the attention of each query to keys [begin, end). Computes a row over all
  // keys if the query has no stored log-sum-exp.
  void visit_keys(const Queries& queries, std::int64_t begin, std::int64_t end,
                  const RowVisitor& visit);
  void add_frequencies(std::int64_t query, AttentionRow& row) const;
  // Computes a tile from scores; `preview` uses only one query per row of cells.
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
