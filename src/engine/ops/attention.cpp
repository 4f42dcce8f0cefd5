#include "engine/ops/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/thread_pool.h"
#include "engine/ops/gemm.h"
#include "engine/ops/packed_keys.h"
#include "engine/ops/row_kernels.h"
#include "engine/ops/score_panel.h"

namespace qkscope {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr std::int64_t kMostTaskColumns = 192;

// A unit of work for one thread: some queries of one sequence and key head.
struct Task {
  std::size_t sequence;
  std::int64_t kv_head;
  std::int64_t first;  // first query
  std::int64_t queries;
};

// A block of queries with all query heads of one key head (GQA): column c holds query first + c /
// group of head c % group. Columns are stored in panels as wide as the register tile.
class QueryBlock {
 public:
  QueryBlock(const AttentionInput& input, const PackedKeys& packed, const Task& task)
      : input_(input),
        packed_(packed),
        task_(task),
        sequence_(input.sequences[task.sequence]),
        group_(input.q.dim(1) / input.k.dim(1)),
        d_(input.q.dim(2)),
        z_rows_(gemm::round_up(d_, gemm::tile_shape().rows)),
        columns_(task.queries * group_),
        panel_(gemm::tile_shape().columns),
        padded_columns_(gemm::round_up(columns_, panel_)) {}

  void run(TensorView z, std::span<rows::RunningSoftmax> row_sums) {
    load_queries();
    const auto end = position(columns_ - 1) + 1;
    const auto begin = first_visible_key(position(0), input_.window) / kKeyBlock * kKeyBlock;
    for (auto key = begin; key < end; key += kKeyBlock)
      for (std::int64_t panel = 0; panel < padded_columns_; panel += panel_)
        attend(packed_.block(task_.sequence, key), panel);
    store(z);
    if (!row_sums.empty()) store(row_sums);
  }

 private:
  // Scratch memory of a thread. Arrays with columns are stored panel by panel, each (..., panel).
  struct Scratch {
    Workspace rows;     // (columns, d) scaled queries
    Workspace q;        // (d, columns)
    Workspace scores;   // (key block, panel)
    Workspace z;        // (z_rows, columns), before division by the softmax sum
    Workspace softmax;  // (4, columns): maximum, sum, first and end of the visible keys
  };

  static Scratch& scratch() {
    thread_local Scratch buffers;
    return buffers;
  }

  // Position of a column; padding columns repeat the last one.
  std::int64_t position(std::int64_t column) const {
    const auto query = task_.first + std::min(column, columns_ - 1) / group_;
    return sequence_.past + row_of_query(query, input_.queries) - sequence_.begin;
  }

  std::int64_t offset_of(std::int64_t column) const {  // offset in q and z
    const auto head = task_.kv_head * group_ + column % group_;
    return ((task_.first + column / group_) * input_.q.dim(1) + head) * d_;
  }

  void load_queries() {
    auto& s = scratch();
    float* rows = s.rows.floats(columns_ * d_);
    for (std::int64_t column = 0; column < columns_; ++column)
      std::copy_n(input_.q.data<float>() + offset_of(column), d_, rows + column * d_);
    rows::scale(rows, columns_ * d_, input_.scale);
    q_ = s.q.floats(padded_columns_ * d_);
    gemm::pack_right({rows, d_, columns_, d_}, q_);
    scores_ = s.scores.floats(gemm::round_up(kKeyBlock, gemm::tile_shape().rows) * panel_);
    z_ = s.z.floats(z_rows_ * padded_columns_);
    std::fill_n(z_, z_rows_ * padded_columns_, 0.0f);
    highest_ = s.softmax.floats(4 * padded_columns_);
    sum_ = highest_ + padded_columns_;
    first_ = sum_ + padded_columns_;
    end_ = first_ + padded_columns_;
    std::fill_n(highest_, padded_columns_, kMinusInfinity);
    std::fill_n(sum_, padded_columns_, 0.0f);
  }

  // Products run in ascending order over d and over keys; masked keys have weight 0.
  void attend(const KeyBlock& block, std::int64_t panel) {
    const auto used = std::min(panel_, columns_ - panel);
    const auto lowest = position(panel);
    const auto highest = position(panel + panel_ - 1);
    const auto keys = std::min(block.keys, highest + 1 - block.first);
    if (first_visible_key(lowest, input_.window) >= block.first + keys) return;
    gemm::multiply({packed_.keys(block, task_.kv_head), q_ + panel * d_,
                    gemm::round_up(keys, gemm::tile_shape().rows), panel_, d_, d_, used},
                   false, scores_, panel_);
    if (input_.softcap > 0.0f) rows::soft_cap(scores_, keys * panel_, input_.softcap);
    const auto all_first = first_visible_key(highest, input_.window) - block.first;
    const auto all_end = lowest + 1 - block.first;
    if (all_first > 0 || all_end < keys) find_visible(block, panel);
    update_softmax({.scores = scores_,
                    .keys = keys,
                    .columns = panel_,
                    .first = first_ + panel,
                    .end = end_ + panel,
                    .all_first = std::max<std::int64_t>(0, all_first),
                    .all_end = std::clamp<std::int64_t>(all_end, 0, keys),
                    .highest = highest_ + panel,
                    .sum = sum_ + panel,
                    .z = z_ + panel * z_rows_,
                    .z_rows = d_,
                    .used = used});
    gemm::multiply(
        {packed_.values(block, task_.kv_head), scores_, z_rows_, panel_, keys, block.packed, used},
        true, z_ + panel * z_rows_, panel_);
  }

  void find_visible(const KeyBlock& block, std::int64_t panel) {
    for (auto column = panel; column < panel + panel_; ++column) {
      const auto here = position(column);
      first_[column] = static_cast<float>(first_visible_key(here, input_.window) - block.first);
      end_[column] = static_cast<float>(here + 1 - block.first);
    }
  }

  // The sink adds exp(sink - highest) to the softmax sum only.
  float sum_with_sink(std::int64_t column) const {
    if (input_.sinks.empty()) return sum_[column];
    const auto head = as_index(task_.kv_head * group_ + column % group_);
    const auto above = static_cast<double>(input_.sinks[head]) - highest_[column];
    return sum_[column] + static_cast<float>(std::exp(above));
  }

  void store(TensorView z) const {
    for (std::int64_t column = 0; column < columns_; ++column) {
      const float* from = z_ + column / panel_ * panel_ * z_rows_ + column % panel_;
      float* out = z.data<float>() + offset_of(column);
      const float factor = 1.0f / sum_with_sink(column);
      for (std::int64_t i = 0; i < d_; ++i) out[i] = from[i * panel_] * factor;
    }
  }

  void store(std::span<rows::RunningSoftmax> row_sums) const {
    for (std::int64_t column = 0; column < columns_; ++column)
      row_sums[as_index(offset_of(column) / d_)] = {highest_[column], sum_[column]};
  }

  const AttentionInput& input_;
  const PackedKeys& packed_;
  const Task& task_;
  const Sequence& sequence_;
  std::int64_t group_;  // query heads per key head
  std::int64_t d_;
  std::int64_t z_rows_;  // d rounded up to whole tiles
  std::int64_t columns_;
  std::int64_t panel_;  // columns per panel
  std::int64_t padded_columns_;
  float* q_ = nullptr;
  float* scores_ = nullptr;
  float* z_ = nullptr;
  float* highest_ = nullptr;
  float* sum_ = nullptr;
  float* first_ = nullptr;
  float* end_ = nullptr;
};

// Queries per task: several tasks per thread, in whole panels. Results do not depend on it.
std::int64_t queries_per_task(const AttentionInput& input) {
  const auto columns = input.q.dim(0) * input.q.dim(1) / (4 * std::int64_t{thread_count()});
  const auto panel = gemm::tile_shape().columns;
  const auto group = input.q.dim(1) / input.k.dim(1);
  const auto per_task = std::clamp(gemm::round_up(columns, panel), panel, kMostTaskColumns);
  return std::max<std::int64_t>(1, per_task / group);
}

std::vector<Task> tasks_of(const AttentionInput& input) {
  const auto per_task = queries_per_task(input);
  std::vector<Task> tasks;
  for (std::size_t sequence = 0; sequence < input.sequences.size(); ++sequence) {
    const auto [begin, end] = queries_of(input.sequences[sequence], input.queries);
    for (auto first = begin; first < end; first += per_task)
      for (std::int64_t head = 0; head < input.k.dim(1); ++head)
        tasks.push_back({sequence, head, first, std::min(per_task, end - first)});
  }
  // Later queries see more keys: their tasks run first to balance the threads.
  std::ranges::reverse(tasks);
  return tasks;
}

}  // namespace

void attention(const AttentionInput& input, TensorView z,
               std::span<rows::RunningSoftmax> row_sums) {
  QKSCOPE_ASSERT(input.q.is_contiguous() && input.k.is_contiguous() && input.v.is_contiguous());
  QKSCOPE_ASSERT(z.is_contiguous() && z.shape() == input.q.shape() &&
                 input.k.shape() == input.v.shape());
  const auto tasks = tasks_of(input);
  if (tasks.empty()) return;
  const auto packed =
      input.packed != nullptr ? *input.packed : pack_keys(input.k, input.v, input.sequences);
  parallel_for(std::ssize(tasks), [&](std::int64_t index) {
    QueryBlock(input, packed, tasks[as_index(index)]).run(z, row_sums);
  });
}

}  // namespace qkscope
