#include "engine/ops/attention.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/thread_pool.h"
#include "engine/ops/gemm.h"
#include "engine/ops/key_kernels.h"
#include "engine/ops/packed_keys.h"

namespace qkscope {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr std::int64_t kMostTaskColumns = 192;

// A unit of work for one thread: some queries of one sequence and key head.
struct AttentionTask {
  std::size_t sequence;
  std::int64_t kv_head;
  std::int64_t first;  // first query
  std::int64_t queries;
};

// A block of queries with all query heads of one key head (GQA): column c holds query first + c /
// group of head c % group. Columns are stored in panels as wide as the register tile.
class QueryBlock {
 public:
  QueryBlock(const AttentionInput& input, const PackedKeyValues& packed, const AttentionTask& task)
      : input_(input), packed_(packed), task_(task) {}

  void compute_attention(TensorView z, std::span<rows::RunningSoftmax> row_sums) {
    load_queries();
    const auto end = position(columns_ - 1) + 1;
    const auto begin = first_visible_key(position(0)) / kKeyBlock * kKeyBlock;
    for (auto key = begin; key < end; key += kKeyBlock)
      for (std::int64_t panel = 0; panel < padded_columns_; panel += panel_)
        add_key_block(packed_.block(task_.sequence, key), panel);
    store_output(z);
    if (!row_sums.empty()) store_row_sums(row_sums);
  }

 private:
  // Scratch memory of a thread. q and z hold one contiguous block (d or z_rows, panel) per panel.
  struct Scratch {
    ScratchFloats rows;     // (columns, d) scaled queries
    ScratchFloats q;        // (d, columns)
    ScratchFloats scores;   // (key block, panel)
    ScratchFloats z;        // (z_rows, columns), before division by the softmax sum
    ScratchFloats softmax;  // (4, columns): maximum, sum, first and end of the visible keys
  };

  static Scratch& scratch() {
    thread_local Scratch buffers;
    return buffers;
  }

  // Returns the position of the query in a column; padding columns repeat the last query.
  std::int64_t position(std::int64_t column) const {
    const auto query = task_.first + std::min(column, columns_ - 1) / group_;
    return sequence_.past + query_row(query, input_.queries) - sequence_.begin;
  }

  std::int64_t first_visible_key(std::int64_t position) const {
    return qkscope::first_visible_key(position, input_.window, input_.chunk);
  }

  std::int64_t query_vector_index(std::int64_t column) const {  // index in q and z
    const auto head = task_.kv_head * group_ + column % group_;
    return (task_.first + column / group_) * input_.q.dim(1) + head;
  }

  void load_queries() {
    auto& s = scratch();
    float* rows = s.rows.reserve(columns_ * d_);
    for (std::int64_t column = 0; column < columns_; ++column)
      std::copy_n(input_.q.data<float>() + query_vector_index(column) * d_, d_, rows + column * d_);
    rows::scale(rows, columns_ * d_, input_.scale);
    q_ = s.q.reserve(padded_columns_ * d_);
    gemm::pack_right_operand({rows, d_, columns_, d_}, q_);
    scores_ = s.scores.reserve(gemm::round_up(kKeyBlock, gemm::tile_shape().rows) * panel_);
    z_ = s.z.reserve(z_rows_ * padded_columns_);
    std::fill_n(z_, z_rows_ * padded_columns_, 0.0f);
    highest_ = s.softmax.reserve(4 * padded_columns_);
    sum_ = highest_ + padded_columns_;
    first_ = sum_ + padded_columns_;
    end_ = first_ + padded_columns_;
    std::fill_n(highest_, padded_columns_, kMinusInfinity);
    std::fill_n(sum_, padded_columns_, 0.0f);
  }

  // Adds a block of keys to the online softmax of a panel of columns; sums run in ascending order.
  void add_key_block(const KeyBlock& block, std::int64_t panel) {
    const auto used = std::min(panel_, columns_ - panel);
    const auto lowest = position(panel);
    const auto highest = position(panel + panel_ - 1);
    const auto keys = std::min(block.keys, highest + 1 - block.first);
    if (first_visible_key(lowest) >= block.first + keys) return;
    gemm::multiply({packed_.keys(block, task_.kv_head), q_ + panel * d_,
                    gemm::round_up(keys, gemm::tile_shape().rows), panel_, d_, d_, used},
                   false, scores_, panel_);
    if (input_.softcap > 0.0f) rows::soft_cap(scores_, keys * panel_, input_.softcap);
    const auto all_first = first_visible_key(highest) - block.first;
    const auto all_end = lowest + 1 - block.first;
    if (all_first > 0 || all_end < keys)
      for (auto column = panel; column < panel + panel_; ++column) {
        first_[column] = static_cast<float>(first_visible_key(position(column)) - block.first);
        end_[column] = static_cast<float>(position(column) + 1 - block.first);
      }
    keys::update_softmax({.scores = scores_,
                          .keys = keys,
                          .columns = panel_,
                          .first = first_ + panel,
                          .end = end_ + panel,
                          .all_first = std::max<std::int64_t>(0, all_first),
                          .all_end = std::clamp<std::int64_t>(all_end, 0, keys),
                          .highest = highest_ + panel,
                          .sum = sum_ + panel,
                          .z = z_ + panel * z_rows_,
                          .z_rows = d_value_,
                          .used = used});
    gemm::multiply(
        {packed_.values(block, task_.kv_head), scores_, z_rows_, panel_, keys, block.packed, used},
        true, z_ + panel * z_rows_, panel_);
  }

  void store_output(TensorView z) const {
    for (std::int64_t column = 0; column < columns_; ++column) {
      const float* from = z_ + column / panel_ * panel_ * z_rows_ + column % panel_;
      float* out = z.data<float>() + query_vector_index(column) * d_value_;
      float sum = sum_[column];
      if (!input_.sinks.empty()) {  // a learned sink adds exp(sink - highest) to the denominator
        const auto head = as_index(task_.kv_head * group_ + column % group_);
        const auto above = static_cast<double>(input_.sinks[head]) - highest_[column];
        sum += static_cast<float>(std::exp(above));
      }
      const float factor = 1.0f / sum;
      for (std::int64_t i = 0; i < d_value_; ++i) out[i] = from[i * panel_] * factor;
    }
  }

  void store_row_sums(std::span<rows::RunningSoftmax> row_sums) const {
    for (std::int64_t column = 0; column < columns_; ++column)
      row_sums[as_index(query_vector_index(column))] = {highest_[column], sum_[column]};
  }

  const AttentionInput& input_;
  const PackedKeyValues& packed_;
  const AttentionTask& task_;
  const Sequence& sequence_ = input_.sequences[task_.sequence];
  std::int64_t group_ = input_.q.dim(1) / input_.k.dim(1);  // query heads per key head
  std::int64_t d_ = input_.q.dim(2);
  std::int64_t d_value_ = input_.v.dim(2);
  std::int64_t z_rows_ = gemm::round_up(d_value_, gemm::tile_shape().rows);
  std::int64_t columns_ = task_.queries * group_;
  std::int64_t panel_ = gemm::tile_shape().columns;  // columns per panel
  std::int64_t padded_columns_ = gemm::round_up(columns_, panel_);
  float* q_ = nullptr;
  float* scores_ = nullptr;
  float* z_ = nullptr;
  float* highest_ = nullptr;
  float* sum_ = nullptr;
  float* first_ = nullptr;
  float* end_ = nullptr;
};

std::vector<AttentionTask> split_into_attention_tasks(const AttentionInput& input) {
  // Several tasks per thread, each of whole register tiles if possible. Results are unaffected.
  const auto columns = input.q.dim(0) * input.q.dim(1) / (4 * std::int64_t{thread_count()});
  const auto panel = gemm::tile_shape().columns;
  const auto task_columns = std::clamp(gemm::round_up(columns, panel), panel, kMostTaskColumns);
  const auto group = input.q.dim(1) / input.k.dim(1);
  const auto per_task = std::max<std::int64_t>(1, task_columns / group);
  std::vector<AttentionTask> tasks;
  for (std::size_t sequence = 0; sequence < input.sequences.size(); ++sequence) {
    const auto [begin, end] = sequence_query_range(input.sequences[sequence], input.queries);
    for (auto first = begin; first < end; first += per_task)
      for (std::int64_t head = 0; head < input.k.dim(1); ++head)
        tasks.push_back({sequence, head, first, std::min(per_task, end - first)});
  }
  // Later queries see more keys: their tasks run first to balance the threads.
  std::ranges::reverse(tasks);
  return tasks;
}

std::size_t find_sequence_of_row(std::span<const Sequence> sequences, std::int64_t row) {
  const auto after = std::ranges::upper_bound(sequences, row, {}, &Sequence::begin);
  return as_index(after - sequences.begin()) - 1;
}

// Computes the scores of one query against its sequence. Returns the visible range [begin, end).
std::pair<std::int64_t, std::int64_t> score_query(const AttentionInput& input, std::int64_t head,
                                                  std::int64_t row, std::span<float> scores) {
  const auto number = find_sequence_of_row(input.sequences, row);
  const auto& sequence = input.sequences[number];
  const auto position = sequence.past + row - sequence.begin;
  const auto d = input.q.dim(2);
  const auto n_kv = input.k.dim(1);
  const auto kv_head = head / (input.q.dim(1) / n_kv);
  const float* q = input.q.data<float>() + (row * input.q.dim(1) + head) * d;
  const auto begin = first_visible_key(position, input.window, input.chunk);
  std::fill(scores.begin(), scores.end(), -std::numeric_limits<float>::infinity());
  const auto key_row = first_key_row(input.sequences, number) + begin;
  const float* k = input.k.data<float>() + (key_row * n_kv + kv_head) * d;
  rows::dot_products({q, k, n_kv * d, position + 1 - begin, d}, input.scale, scores.data() + begin);
  if (input.softcap > 0.0f)
    rows::soft_cap(scores.data() + begin, position + 1 - begin, input.softcap);
  return {begin, position + 1};
}

// Softmax of one row. An attention sink is one additional score without an entry in the pattern.
void softmax(const AttentionInput& input, std::int64_t head, std::span<const float> scores,
             std::pair<std::int64_t, std::int64_t> visible, std::span<float> pattern) {
  const auto [begin, end] = visible;
  thread_local std::vector<float> joined;
  joined.assign(scores.begin() + begin, scores.begin() + end);
  if (!input.sinks.empty()) joined.push_back(input.sinks[as_index(head)]);
  rows::softmax(joined.data(), std::ssize(joined), joined.data());
  std::fill(pattern.begin(), pattern.end(), 0.0f);
  std::copy_n(joined.begin(), end - begin, pattern.begin() + begin);
}

// Calls body(index of the output row, head, row of q) for each head and each selected row.
template <typename Body>
void for_each_head_and_row(const AttentionInput& input, std::span<const std::int64_t> rows,
                           Body body) {
  const auto count = static_cast<std::int64_t>(rows.size());
  parallel_for(input.q.dim(1) * count, [&](std::int64_t index) {
    body(index, index / count, rows[as_index(index % count)]);
  });
}

// Returns row `index` of scores or patterns (n_heads * rows, keys); empty for an empty tensor.
template <typename View>
auto tensor_row(View tensor, std::int64_t index) {
  return std::span(tensor.template data<float>() + index * tensor.dim(2), as_index(tensor.dim(2)));
}

bool are_bit_identical(std::span<const float> a, std::span<const float> b) {
  return std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

struct EditedPattern {
  std::vector<float> pattern;  // (keys)
  bool changed = false;        // differs from the unedited row
};

// Computes the attention pattern of a query and head; edited `scores` or `pattern` override it.
EditedPattern compute_edited_pattern(const AttentionInput& input, std::int64_t head,
                                     std::int64_t row, std::span<const float> scores,
                                     std::span<const float> pattern) {
  std::vector<float> unedited(std::max(scores.size(), pattern.size()));
  EditedPattern edited{std::vector<float>(unedited.size())};
  softmax(input, head, unedited, score_query(input, head, row, unedited), edited.pattern);
  if (!scores.empty() && !are_bit_identical(scores, unedited)) {
    edited.changed = true;
    softmax(input, head, scores, {0, std::ssize(scores)}, edited.pattern);
  }
  if (!pattern.empty() && !are_bit_identical(pattern, edited.pattern)) {
    edited.changed = true;
    edited.pattern.assign(pattern.begin(), pattern.end());
  }
  return edited;
}

void apply_pattern_to_values(const AttentionInput& input, std::int64_t head, std::int64_t row,
                             std::span<const float> pattern, TensorView z) {
  const auto number = find_sequence_of_row(input.sequences, row);
  const auto first_row = first_key_row(input.sequences, number);
  const auto d = input.v.dim(2);
  const auto n_kv = input.v.dim(1);
  const auto kv_head = head / (input.q.dim(1) / n_kv);
  float* out = z.data<float>() + (row * z.dim(1) + head) * d;
  std::fill(out, out + d, 0.0f);
  for (std::int64_t key = 0; key < input.sequences[number].end(); ++key) {
    const float weight = pattern[as_index(key)];
    if (weight == 0.0f) continue;
    const float* v = input.v.data<float>() + ((first_row + key) * n_kv + kv_head) * d;
    rows::add_scaled(out, v, d, weight);
  }
}

}  // namespace

void compute_attention(const AttentionInput& input, TensorView z,
                       std::span<rows::RunningSoftmax> row_sums) {
  QKSCOPE_ASSERT(input.q.is_contiguous() && input.k.is_contiguous() && input.v.is_contiguous());
  QKSCOPE_ASSERT(z.is_contiguous() && z.dim(0) == input.q.dim(0) && z.dim(1) == input.q.dim(1) &&
                 z.dim(2) == input.v.dim(2));
  QKSCOPE_ASSERT(input.k.dim(0) == input.v.dim(0) && input.k.dim(1) == input.v.dim(1));
  const auto tasks = split_into_attention_tasks(input);
  if (tasks.empty()) return;
  const auto packed =
      input.packed != nullptr ? *input.packed : pack_key_values(input.k, input.v, input.sequences);
  parallel_for(std::ssize(tasks), [&](std::int64_t index) {
    QueryBlock(input, packed, tasks[as_index(index)]).compute_attention(z, row_sums);
  });
}

void compute_row_scores(const AttentionInput& input, std::span<const std::int64_t> rows,
                        TensorView scores, TensorView pattern) {
  const auto keys = as_index((scores.empty() ? pattern : scores).dim(2));
  for_each_head_and_row(input, rows, [&](std::int64_t index, std::int64_t head, std::int64_t row) {
    thread_local std::vector<float> buffer;
    buffer.resize(keys);
    const auto row_scores = scores.empty() ? std::span(buffer) : tensor_row(scores, index);
    const auto visible = score_query(input, head, row, row_scores);
    if (!pattern.empty()) softmax(input, head, row_scores, visible, tensor_row(pattern, index));
  });
}

void recompute_attention_pattern(const AttentionInput& input, std::span<const std::int64_t> rows,
                                 ConstTensorView scores, TensorView pattern) {
  if (pattern.empty()) return;
  for_each_head_and_row(input, rows, [&](std::int64_t index, std::int64_t head, std::int64_t row) {
    const auto edited = compute_edited_pattern(input, head, row, tensor_row(scores, index), {});
    std::ranges::copy(edited.pattern, tensor_row(pattern, index).begin());
  });
}

void recompute_edited_rows(const AttentionInput& input, std::span<const std::int64_t> rows,
                           ConstTensorView scores, ConstTensorView pattern, TensorView z) {
  for_each_head_and_row(input, rows, [&](std::int64_t index, std::int64_t head, std::int64_t row) {
    const auto edited = compute_edited_pattern(input, head, row, tensor_row(scores, index),
                                               tensor_row(pattern, index));
    if (edited.changed) apply_pattern_to_values(input, head, row, edited.pattern, z);
  });
}

}  // namespace qkscope
