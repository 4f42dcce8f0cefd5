#include "analysis/viewer/head_attention.h"

#include <bit>
#include <cmath>
#include <limits>
#include <tuple>

#include "base/core/clock.h"
#include "base/core/numbers.h"
#include "base/core/thread_pool.h"
#include "engine/ops/attention.h"
#include "engine/ops/gemm.h"
#include "engine/ops/key_kernels.h"
#include "engine/ops/row_kernels.h"

namespace qkscope {
namespace {

constexpr std::int64_t kQueryBlock = 64;       // minimum number of queries per task
constexpr std::int64_t kKeysPerProduct = 512;  // keys per matrix product
constexpr float kUnknown = std::numeric_limits<float>::quiet_NaN();

struct CellSums {
  float sum = 0;
  float largest = 0;
};

// Computes the sum and maximum of `p`, the attention to keys [begin, begin + p.size()), per cell of
// 2^level keys. Cell 0 starts at key `origin`. Calls add(cell, sums) for each cell.
template <typename Add>
void reduce_by_cell(std::span<const float> p, std::int64_t begin, std::int64_t origin, int level,
                    Add add) {
  const auto end = begin + std::ssize(p);
  for (auto key = begin; key < end;) {
    const auto cell = (key - origin) >> level;
    const auto next = std::min(end, origin + ((cell + 1) << level));
    const auto count = next - key;
    const float* values = p.data() + (key - begin);
    // Non-negative floats sort like their bit patterns, and an integer maximum vectorises.
    std::int32_t largest = 0;
    for (std::int64_t i = 0; i < count; ++i)
      largest = std::max(largest, std::bit_cast<std::int32_t>(values[i]));
    add(cell, CellSums{keys::sum_attention_weights(values, count), std::bit_cast<float>(largest)});
    key = next;
  }
}

// Entropy (nats) and mean distance of a query's attention. `pattern` ends at the query's own key.
std::pair<double, double> entropy_and_distance(std::span<const float> pattern) {
  double entropy = 0;
  double distance = 0;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const double p = pattern[i];
    if (p > 0) entropy -= p * std::log(p);
    distance += p * static_cast<double>(pattern.size() - 1 - i);
  }
  return {entropy, distance};
}

}  // namespace

HeadAttention::HeadAttention(QueryKeyStore& store, std::int64_t layer, std::int64_t head)
    : store_(store),
      layer_(layer),
      head_(head),
      scale_(static_cast<float>(store.config().score_scale(layer))),
      softcap_(static_cast<float>(store.config().attention_softcap)),
      window_(store.config().layers[as_index(layer)].window),
      chunk_(store.config().layers[as_index(layer)].chunk),
      sink_(store.sinks(layer).empty() ? std::span<const float>()
                                       : store.sinks(layer).subspan(as_index(head), 1)),
      log_sum_exp_(as_index(store.rows()), kUnknown) {
  while ((rows() - 1) >> overview_level_ >= kOverviewCells) ++overview_level_;
  query_block_ = std::max(kQueryBlock, std::int64_t{1} << overview_level_);
}

HeadVectors HeadAttention::load_head_vectors() {
  auto vectors = store_.head_vectors(layer_, head_);
  q_ = vectors.q;
  k_ = vectors.k;
  return vectors;
}

AttentionRow HeadAttention::row(std::int64_t query) {
  const auto vectors = load_head_vectors();
  const auto d = store_.config().d_head;
  const auto bytes = [](const float* x) { return reinterpret_cast<const std::byte*>(x); };
  const Sequence sequence{.length = query + 1};
  const AttentionInput input{.q = {bytes(q_), DType::f32, {query + 1, 1, d}},
                             .k = {bytes(k_), DType::f32, {query + 1, 1, d}},
                             .v = {},
                             .sequences = {&sequence, 1},
                             .scale = scale_,
                             .window = window_,
                             .chunk = chunk_,
                             .softcap = softcap_,
                             .sinks = sink_};
  Tensor scores({1, 1, query + 1});
  Tensor pattern({1, 1, query + 1});
  compute_row_scores(input, {&query, 1}, scores, pattern);
  AttentionRow row;
  row.first_key = first_visible_key(query, window_, chunk_);
  row.scores.assign(scores.data<float>() + row.first_key, scores.data<float>() + query + 1);
  row.pattern.assign(pattern.data<float>() + row.first_key, pattern.data<float>() + query + 1);
  // For accuracy, derive the log-sum-exp (score - ln weight) from the key with the largest weight.
  const auto best = as_index(std::ranges::max_element(row.pattern) - row.pattern.begin());
  row.log_sum_exp = row.scores[best] - std::log(row.pattern[best]);
  row.first_token = row.first_key == 0 ? row.pattern[0] : 0.0;
  std::tie(row.entropy, row.distance) = entropy_and_distance(row.pattern);
  add_frequency_scores(query, row);
  return row;
}

void HeadAttention::add_frequency_scores(std::int64_t query, AttentionRow& row) const {
  const auto* rope = store_.config().rope(layer_);
  if (rope == nullptr) return;
  const auto d = store_.config().d_head;
  std::vector<float> attended(as_index(d));  // mean key, weighted by attention
  std::vector<float> mean(as_index(d));
  const float share = 1.0f / static_cast<float>(row.pattern.size());
  for (std::int64_t i = 0; i < std::ssize(row.pattern); ++i) {
    const float* key = k_ + (row.first_key + i) * d;
    rows::add_scaled(attended.data(), key, d, row.pattern[as_index(i)]);
    rows::add_scaled(mean.data(), key, d, share);
  }
  const float* q = q_ + query * d;
  const auto half = rope->dim / 2;
  const bool interleaved = store_.config().rotated_pairs_interleaved();
  for (std::int64_t pair = 0; pair < half; ++pair) {
    const auto x = as_index(rope->begin + (interleaved ? 2 * pair : pair));
    const auto y = x + as_index(interleaved ? 1 : half);
    row.attended_by_frequency.push_back(scale_ * (q[x] * attended[x] + q[y] * attended[y]));
    row.mean_by_frequency.push_back(scale_ * (q[x] * mean[x] + q[y] * mean[y]));
  }
}

void HeadAttention::pack_keys() {
  if (!packed_keys_.empty()) return;
  const auto d = store_.config().d_head;
  const auto columns = gemm::tile_shape().columns;
  packed_keys_.resize(as_index(gemm::round_up(rows(), columns) * d));
  const auto block = gemm::round_up(kKeysPerProduct, columns);
  parallel_for((rows() + block - 1) / block, [&](std::int64_t i) {
    const auto first = i * block;
    gemm::pack_right_operand({k_ + first * d, d, std::min(block, rows() - first), d},
                             packed_keys_.data() + first * d);
  });
}

// `out`: scores, shape (queries, end - begin + 1); the last column is left unwritten. `begin` must
// be a multiple of the number of columns in a gemm tile.
void HeadAttention::compute_scores(const QueryRange& queries, std::int64_t begin, std::int64_t end,
                                   float* out) const {
  const auto d = store_.config().d_head;
  const auto stride = end - begin + 1;
  const auto block = gemm::round_up(kKeysPerProduct, gemm::tile_shape().columns);
  thread_local std::vector<float> packed;
  packed.resize(as_index(gemm::round_up(queries.count, gemm::tile_shape().rows) * d));
  gemm::pack_left_operand({q_ + queries.first * d, queries.step * d, queries.count, d},
                          packed.data());
  rows::scale(packed.data(), std::ssize(packed), scale_);
  for (auto key = begin; key < end; key += block)
    gemm::multiply({packed.data(), packed_keys_.data() + key * d, queries.count,
                    std::min(block, end - key), d},
                   false, out + (key - begin), stride);
  for (std::int64_t i = 0; softcap_ > 0.0f && i < queries.count; ++i)
    rows::soft_cap(out + i * stride, stride - 1, softcap_);
}

KeyInterval HeadAttention::replace_scores_with_attention(std::int64_t query, float* row,
                                                         std::int64_t origin, KeyInterval keys) {
  const auto visible = first_visible_key(query, window_, chunk_);
  const KeyInterval seen{std::max(keys.first, visible), std::min(keys.second, query + 1)};
  auto& lse = log_sum_exp_[as_index(query)];
  if (std::isnan(lse)) {
    float* const scores = row + (visible - origin);
    const auto count = query + 1 - visible;
    const auto best = std::max_element(scores, scores + count) - scores;
    const float largest = scores[best];
    if (!sink_.empty()) scores[count] = sink_[0];  // overwrites an invisible key
    rows::softmax(scores, count + std::ssize(sink_), scores);
    lse = largest - std::log(scores[best]);
  } else if (seen.first < seen.second) {
    float* const scores = row + (seen.first - origin);
    keys::compute_attention_weights(scores, seen.second - seen.first, keys::HighLowLogSumExp(lse),
                                    scores);
  }
  return seen;
}

void HeadAttention::visit_rows(const QueryRange& queries, std::int64_t begin, std::int64_t end,
                               const RowVisitor& visit) {
  pack_keys();
  const auto columns = gemm::tile_shape().columns;
  parallel_for((queries.count + query_block_ - 1) / query_block_, [&](std::int64_t block) {
    const auto skipped = block * query_block_;
    const QueryRange part{queries.query(skipped), queries.step,
                          std::min(query_block_, queries.count - skipped)};
    bool known = true;
    for (std::int64_t i = 0; i < part.count; ++i)
      known = known && !std::isnan(log_sum_exp_[as_index(part.query(i))]);
    const auto visible = first_visible_key(part.first, window_, chunk_);
    const auto origin = (known ? std::max(begin, visible) : visible) / columns * columns;
    const auto last = part.query(part.count - 1) + 1;
    const auto high = known ? std::min(end, last) : last;
    if (origin >= high) return;
    thread_local std::vector<float> matrix;
    matrix.resize(as_index(part.count * (high - origin + 1)));
    compute_scores(part, origin, high, matrix.data());
    for (std::int64_t i = 0; i < part.count; ++i) {
      float* row = matrix.data() + i * (high - origin + 1);
      const auto seen = replace_scores_with_attention(part.query(i), row, origin, {begin, end});
      if (seen.first < seen.second)
        visit(skipped + i, {row + (seen.first - origin), as_index(seen.second - seen.first)}, seen);
    }
  });
}

HeadStatistics HeadAttention::statistics(std::int64_t samples) {
  const auto vectors = load_head_vectors();
  const auto count = std::min(samples, rows());
  const auto step = rows() / count;
  const QueryRange queries{step - 1, step, count};
  std::vector<HeadStatistics> each(as_index(count));
  visit_rows(queries, 0, rows(), [&](std::int64_t i, std::span<const float> p, auto range) {
    const auto [entropy, distance] = entropy_and_distance(p);
    each[as_index(i)] = {{static_cast<float>(entropy), range.first == 0 ? p.front() : 0.0f,
                          p.size() > 1 ? p[p.size() - 2] : 0.0f, p.back(),
                          static_cast<float>(distance), *std::ranges::max_element(p)}};
  });
  HeadStatistics mean;
  for (std::size_t value = 0; value < HeadStatistics::kCount; ++value) {
    double sum = 0;
    for (const auto& statistics : each) sum += statistics.values[value];
    mean.values[value] = static_cast<float>(sum / static_cast<double>(count));
  }
  return mean;
}

double HeadAttention::compute_overview_part(double budget_seconds) {
  const auto vectors = load_head_vectors();
  if (largest_.empty()) {
    largest_.resize(as_index(cells_per_side(overview_level_) * cells_per_side(overview_level_)));
    sum_.resize(largest_.size());
  }
  const auto start = Clock::now();
  const auto batch = query_block_ * thread_count();
  while (overview_rows_ < rows()) {
    const auto first = overview_rows_;
    const auto count = std::min(batch, rows() - first);
    const auto add_block = [&](std::int64_t i, std::span<const float> p, auto range) {
      const auto cell_row = ((first + i) >> overview_level_) * cells_per_side(overview_level_);
      reduce_by_cell(p, range.first, 0, overview_level_, [&](auto cell, const CellSums& sums) {
        accumulate_in_cell(largest_[as_index(cell_row + cell)], sums.largest, ReduceOp::largest);
        accumulate_in_cell(sum_[as_index(cell_row + cell)], sums.sum, ReduceOp::sum);
      });
    };
    visit_rows({first, 1, count}, 0, rows(), add_block);
    overview_rows_ += count;
    if (seconds_since(start) > budget_seconds) break;
  }
  return static_cast<double>(overview_rows_) / static_cast<double>(rows());
}

AttentionTile HeadAttention::tile(int level, std::int64_t row, std::int64_t column,
                                  ReduceOp value) {
  const auto first_query = (row * kTileCells) << level;
  const auto first_key = (column * kTileCells) << level;
  if (first_query >= rows() || first_key >= rows() || column > row)
    return {std::vector<float>(as_index(kTileCells * kTileCells))};
  const auto vectors = load_head_vectors();
  if (level < overview_level_) return compute_tile(level, row, column, value, false);
  const auto end_query = std::min(rows(), first_query + (kTileCells << level));
  if (overview_rows_ < end_query) return compute_tile(level, row, column, value, true);
  return {overview_cells(level, row * kTileCells, column * kTileCells, kTileCells, value)};
}

std::vector<float> HeadAttention::overview_cells(int level, std::int64_t row, std::int64_t column,
                                                 std::int64_t side, ReduceOp value) const {
  std::vector<float> cells(as_index(side * side));
  const auto shift = level - overview_level_;
  const auto& base = value == ReduceOp::largest ? largest_ : sum_;
  const auto base_side = cells_per_side(overview_level_);
  for (auto i = row << shift; i < std::min(base_side, (row + side) << shift); ++i)
    for (auto j = column << shift; j < std::min(base_side, (column + side) << shift); ++j)
      accumulate_in_cell(cells[as_index(((i >> shift) - row) * side + (j >> shift) - column)],
                         base[as_index(i * base_side + j)], value);
  return cells;
}

AttentionTile HeadAttention::compute_tile(int level, std::int64_t row, std::int64_t column,
                                          ReduceOp value, bool preview) {
  AttentionTile tile{std::vector<float>(as_index(kTileCells * kTileCells)), !preview};
  const auto first_query = (row * kTileCells) << level;
  const auto first_key = (column * kTileCells) << level;
  const auto width = std::int64_t{1} << level;
  // A preview evaluates one query per heat map row, the middle one, instead of all its queries.
  const auto first = preview ? std::min(first_query + width / 2, rows() - 1) : first_query;
  const auto step = preview ? width : 1;
  const QueryRange queries{first, step,
                           std::min((kTileCells << level) / step, (rows() - 1 - first) / step + 1)};
  const float factor = preview && value == ReduceOp::sum ? static_cast<float>(width) : 1.0f;
  visit_rows(queries, first_key, std::min(rows(), first_key + (kTileCells << level)),
             [&](std::int64_t i, std::span<const float> p, auto range) {
               float* cells = tile.cells.data() + (i * step >> level) * kTileCells;
               reduce_by_cell(p, range.first, first_key, level,
                              [&](std::int64_t cell, const CellSums& sums) {
                                const float x = value == ReduceOp::sum ? sums.sum : sums.largest;
                                accumulate_in_cell(cells[cell], factor * x, value);
                              });
             });
  return tile;
}

}  // namespace qkscope
