#include "ops/attention.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "core/error.h"
#include "core/thread_pool.h"
#include "ops/gemm.h"
#include "ops/row_kernels.h"

namespace qkscope {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
// Key blocks begin at multiples of this within a sequence, so that a row's sums run in the same
// order in every sequence that shares its prefix.
constexpr std::int64_t kKeyBlock = 256;
constexpr std::int64_t kRowsPerBlock = 192;

// One block of queries with all query heads that share a key head: row r holds query
// first + r / group of head r % group.
class QueryBlock {
 public:
  QueryBlock(const AttentionInput& input, const Sequence& sequence, std::int64_t kv_head,
             std::int64_t first, std::int64_t queries)
      : input_(input),
        sequence_(sequence),
        kv_head_(kv_head),
        first_(first),
        queries_(queries),
        group_(input.q.dim(1) / input.k.dim(1)),
        d_(input.q.dim(2)),
        rows_(queries * group_) {}

  void run(TensorView z, std::span<rows::RunningSoftmax> row_sums) {
    load_queries();
    const auto end = position(first_ + queries_ - 1) + 1;
    const auto begin = first_visible_key(position(first_), input_.window) / kKeyBlock * kKeyBlock;
    for (auto key = begin; key < end; key += kKeyBlock) attend(key, std::min(kKeyBlock, end - key));
    store(z);
    if (!row_sums.empty()) store(row_sums);
  }

 private:
  struct Scratch {
    std::vector<float> q;  // (rows, d)
    std::vector<float> packed_q;
    std::vector<float> packed_weights;
    std::vector<float> packed_keys;             // keys, then values
    std::vector<float> scores;                  // (rows, key block)
    std::vector<float> z;                       // (rows, d), not yet divided by the softmax's sum
    std::vector<rows::RunningSoftmax> softmax;  // (rows)
  };

  static Scratch& scratch() {
    thread_local Scratch buffers;
    return buffers;
  }

  std::int64_t position(std::int64_t query) const {
    return row_of_query(query, input_.queries) - sequence_.begin;
  }

  std::int64_t offset_of(std::int64_t row) const {  // in q and z
    return ((first_ + row / group_) * input_.q.dim(1) + kv_head_ * group_ + row % group_) * d_;
  }

  void load_queries() {
    auto& s = scratch();
    const auto size = static_cast<std::size_t>(rows_ * d_);
    const auto tile = gemm::tile_shape();
    const auto padded_rows = gemm::round_up(rows_, tile.rows);
    s.q.resize(size);
    s.z.assign(size, 0.0f);
    s.scores.resize(static_cast<std::size_t>(rows_ * kKeyBlock));
    s.packed_q.resize(static_cast<std::size_t>(padded_rows * d_));
    s.packed_weights.resize(static_cast<std::size_t>(padded_rows * kKeyBlock));
    s.packed_keys.resize(
        static_cast<std::size_t>(std::max(gemm::round_up(kKeyBlock, tile.columns) * d_,
                                          kKeyBlock * gemm::round_up(d_, tile.columns))));
    s.softmax.assign(static_cast<std::size_t>(rows_), {kMinusInfinity, 0.0f});
    for (std::int64_t row = 0; row < rows_; ++row)
      std::memcpy(s.q.data() + row * d_, input_.q.data<float>() + offset_of(row),
                  static_cast<std::size_t>(d_) * sizeof(float));
    gemm::pack({s.q.data(), d_, rows_, d_}, input_.scale, s.packed_q.data());
  }

  // The products run over d and over the keys of a block in ascending order; weights of keys that a
  // row does not see are zero and add nothing.
  void attend(std::int64_t first_key, std::int64_t keys) {
    auto& s = scratch();
    const auto stride = input_.k.dim(1) * d_;
    const auto offset = (sequence_.begin + first_key) * stride + kv_head_ * d_;
    gemm::pack(gemm::RightColumns{input_.k.data<float>() + offset, stride, keys, d_},
               s.packed_keys.data());
    gemm::multiply({s.packed_q.data(), s.packed_keys.data(), rows_, keys, d_}, false,
                   s.scores.data(), kKeyBlock);
    for (std::int64_t row = 0; input_.softcap > 0.0f && row < rows_; ++row)
      rows::soft_cap(s.scores.data() + row * kKeyBlock, keys, input_.softcap);
    for (std::int64_t row = 0; row < rows_; ++row) weigh(row, first_key, keys);
    gemm::pack({s.scores.data(), kKeyBlock, rows_, keys}, 1.0f, s.packed_weights.data());
    gemm::pack(gemm::RightRows{input_.v.data<float>() + offset, stride, keys, d_},
               s.packed_keys.data());
    gemm::multiply({s.packed_weights.data(), s.packed_keys.data(), rows_, d_, keys}, true,
                   s.z.data(), d_);
  }

  // Turns a row of scores into unnormalised weights, and what was summed before to the new maximum.
  void weigh(std::int64_t row, std::int64_t first_key, std::int64_t keys) {
    auto& s = scratch();
    float* scores = s.scores.data() + row * kKeyBlock;
    const auto here = position(first_ + row / group_);
    const auto begin =
        std::clamp<std::int64_t>(first_visible_key(here, input_.window) - first_key, 0, keys);
    const auto end = std::clamp<std::int64_t>(here + 1 - first_key, begin, keys);
    std::fill(scores, scores + begin, 0.0f);
    std::fill(scores + end, scores + keys, 0.0f);
    if (begin == end) return;
    const float kept =
        rows::weigh(scores + begin, end - begin, s.softmax[static_cast<std::size_t>(row)]);
    if (kept != 1.0f) rows::scale(s.z.data() + row * d_, d_, kept);
  }

  void store(TensorView z) const {
    const auto& s = scratch();
    for (std::int64_t row = 0; row < rows_; ++row) {
      float* out = z.data<float>() + offset_of(row);
      std::memcpy(out, s.z.data() + row * d_, static_cast<std::size_t>(d_) * sizeof(float));
      rows::scale(out, d_, 1.0f / s.softmax[static_cast<std::size_t>(row)].sum);
    }
  }

  void store(std::span<rows::RunningSoftmax> row_sums) const {
    for (std::int64_t row = 0; row < rows_; ++row)
      row_sums[static_cast<std::size_t>(offset_of(row) / d_)] =
          scratch().softmax[static_cast<std::size_t>(row)];
  }

  const AttentionInput& input_;
  const Sequence& sequence_;
  std::int64_t kv_head_;
  std::int64_t first_;
  std::int64_t queries_;
  std::int64_t group_;  // query heads that share this key head
  std::int64_t d_;
  std::int64_t rows_;
};

struct BlockTask {
  const Sequence* sequence;
  std::int64_t kv_head;
  std::int64_t first;
  std::int64_t queries;
};

}  // namespace

void attention(const AttentionInput& input, TensorView z,
               std::span<rows::RunningSoftmax> row_sums) {
  QKSCOPE_ASSERT(input.q.is_contiguous() && input.k.is_contiguous() && input.v.is_contiguous());
  QKSCOPE_ASSERT(z.is_contiguous() && z.shape() == input.q.shape() &&
                 input.k.shape() == input.v.shape());
  const auto group = input.q.dim(1) / input.k.dim(1);
  const auto per_block = std::max<std::int64_t>(16, kRowsPerBlock / group);
  std::vector<BlockTask> tasks;
  for (const auto& sequence : input.sequences) {
    const auto [begin, end] = queries_of(sequence, input.queries);
    for (auto first = begin; first < end; first += per_block)
      for (std::int64_t head = 0; head < input.k.dim(1); ++head)
        tasks.push_back({&sequence, head, first, std::min(per_block, end - first)});
  }
  // The last blocks see the most keys: they go first, so that no thread is left with a long one.
  std::reverse(tasks.begin(), tasks.end());
  parallel_for(static_cast<std::int64_t>(tasks.size()), [&](std::int64_t index) {
    const auto& task = tasks[static_cast<std::size_t>(index)];
    QueryBlock(input, *task.sequence, task.kv_head, task.first, task.queries).run(z, row_sums);
  });
}

}  // namespace qkscope
