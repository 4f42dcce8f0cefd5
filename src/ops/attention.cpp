#include "ops/attention.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "core/thread_pool.h"
#include "ops/blas.h"
#include "ops/vector_math.h"

namespace qkscope {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
// Key blocks begin at multiples of this within a sequence, so that a row's sums run in the same
// order in every sequence that shares its prefix.
constexpr std::int64_t kKeyBlock = 256;
constexpr std::int64_t kRowsPerBlock = 192;
// BLAS sees heights and widths that are multiples of this, filled up with zeros: so a row takes the
// same path through its kernels whatever stands beside it.
constexpr std::int64_t kUnit = 16;

std::int64_t round_up(std::int64_t value) {
  return (value + kUnit - 1) / kUnit * kUnit;
}

// One block of query positions with all query heads that share a key head: row r holds position
// first + r / group of head r % group.
class QueryBlock {
 public:
  QueryBlock(const AttentionInput& input, const Segment& segment, std::int64_t kv_head,
             std::int64_t first, std::int64_t positions)
      : input_(input),
        segment_(segment),
        kv_head_(kv_head),
        first_(first),
        positions_(positions),
        group_(input.q.dim(1) / input.k.dim(1)),
        d_(input.q.dim(2)),
        rows_(positions * group_) {}

  void run(TensorView z) {
    load_queries();
    const auto end = first_ + positions_;
    const auto begin = first_visible_key(first_, input_.window) / kKeyBlock * kKeyBlock;
    for (auto key = begin; key < end; key += kKeyBlock)
      attend(key, std::min(kKeyBlock, round_up(end - key)));
    store(z);
  }

 private:
  struct Scratch {
    std::vector<float> q;        // (padded rows, d)
    std::vector<float> k;        // (keys, d): the block at a sequence's end, filled up
    std::vector<float> v;        // (keys, d)
    std::vector<float> scores;   // (padded rows, key block)
    std::vector<float> z;        // (padded rows, d), not yet divided by sum
    std::vector<float> highest;  // (rows)
    std::vector<float> sum;      // (rows)
  };

  static Scratch& scratch() {
    thread_local Scratch buffers;
    return buffers;
  }

  const float* query(std::int64_t row) const {
    const auto position = segment_.begin + first_ + row / group_;
    return input_.q.data<float>() +
           (position * input_.q.dim(1) + kv_head_ * group_ + row % group_) * d_;
  }

  void load_queries() {
    auto& s = scratch();
    const auto size = static_cast<std::size_t>(round_up(rows_) * d_);
    s.q.assign(size, 0.0f);
    s.z.assign(size, 0.0f);
    s.scores.resize(static_cast<std::size_t>(round_up(rows_) * kKeyBlock));
    s.highest.assign(static_cast<std::size_t>(rows_), kMinusInfinity);
    s.sum.assign(static_cast<std::size_t>(rows_), 0.0f);
    for (std::int64_t row = 0; row < rows_; ++row)
      std::memcpy(s.q.data() + row * d_, query(row), static_cast<std::size_t>(d_) * sizeof(float));
  }

  struct Block {
    const float* values;  // (keys, d)
    int stride;
  };

  // Keys [first, first + count) of `source`; beyond the end of the sequence they are zero.
  Block key_block(ConstTensorView source, std::int64_t first, std::int64_t count,
                  std::vector<float>& filled) const {
    const auto stride = source.dim(1) * d_;
    const float* values = source.data<float>() + (segment_.begin + first) * stride + kv_head_ * d_;
    if (first + count <= segment_.length) return {values, static_cast<int>(stride)};
    filled.assign(static_cast<std::size_t>(count * d_), 0.0f);
    for (std::int64_t key = 0; first + key < segment_.length; ++key)
      std::memcpy(filled.data() + key * d_, values + key * stride,
                  static_cast<std::size_t>(d_) * sizeof(float));
    return {filled.data(), static_cast<int>(d_)};
  }

  void attend(std::int64_t first_key, std::int64_t keys) {
    auto& s = scratch();
    const auto k = key_block(input_.k, first_key, keys, s.k);
    const auto v = key_block(input_.v, first_key, keys, s.v);
    const auto rows = static_cast<int>(round_up(rows_));
    const auto d = static_cast<int>(d_);
    const auto n = static_cast<int>(keys);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, n, d, input_.scale, s.q.data(), d,
                k.values, k.stride, 0.0f, s.scores.data(), kKeyBlock);
    for (std::int64_t row = 0; row < rows_; ++row) weigh(row, first_key, keys);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, d, n, 1.0f, s.scores.data(),
                kKeyBlock, v.values, v.stride, 1.0f, s.z.data(), d);
  }

  // Turns a row of scores into unnormalised weights, and what was summed before to the new maximum.
  void weigh(std::int64_t row, std::int64_t first_key, std::int64_t keys) {
    auto& s = scratch();
    float* scores = s.scores.data() + row * kKeyBlock;
    const auto position = first_ + row / group_;
    const auto begin =
        std::clamp<std::int64_t>(first_visible_key(position, input_.window) - first_key, 0, keys);
    const auto end = std::clamp<std::int64_t>(position + 1 - first_key, begin, keys);
    std::fill(scores, scores + begin, 0.0f);
    std::fill(scores + end, scores + keys, 0.0f);
    if (begin == end) return;
    const auto at = static_cast<std::size_t>(row);
    float highest = s.highest[at];
    for (auto i = begin; i < end; ++i) highest = std::max(highest, scores[i]);
    for (auto i = begin; i < end; ++i) scores[i] = exp_approx(scores[i] - highest);
    const float sum = lane_sum(end - begin, [&](std::int64_t i) { return scores[begin + i]; });
    const float kept = s.sum[at] == 0.0f ? 0.0f : exp_approx(s.highest[at] - highest);
    if (kept != 1.0f)
      for (std::int64_t i = 0; i < d_; ++i)
        s.z[at * static_cast<std::size_t>(d_) + static_cast<std::size_t>(i)] *= kept;
    s.sum[at] = s.sum[at] * kept + sum;
    s.highest[at] = highest;
  }

  void store(TensorView z) const {
    const auto& s = scratch();
    const auto n_heads = input_.q.dim(1);
    for (std::int64_t row = 0; row < rows_; ++row) {
      const auto position = segment_.begin + first_ + row / group_;
      float* out = z.data<float>() + (position * n_heads + kv_head_ * group_ + row % group_) * d_;
      const float factor = 1.0f / s.sum[static_cast<std::size_t>(row)];
      for (std::int64_t i = 0; i < d_; ++i)
        out[i] = s.z[static_cast<std::size_t>(row * d_ + i)] * factor;
    }
  }

  const AttentionInput& input_;
  const Segment& segment_;
  std::int64_t kv_head_;
  std::int64_t first_;
  std::int64_t positions_;
  std::int64_t group_;  // query heads that share this key head
  std::int64_t d_;
  std::int64_t rows_;
};

struct BlockTask {
  const Segment* segment;
  std::int64_t kv_head;
  std::int64_t first;
};

}  // namespace

void attention(const AttentionInput& input, TensorView z) {
  QKSCOPE_ASSERT(input.q.is_contiguous() && input.k.is_contiguous() && input.v.is_contiguous());
  QKSCOPE_ASSERT(z.is_contiguous() && z.shape() == input.q.shape() &&
                 input.k.shape() == input.v.shape());
  use_one_blas_thread();
  const auto group = input.q.dim(1) / input.k.dim(1);
  const auto positions = std::max<std::int64_t>(16, kRowsPerBlock / group);
  std::vector<BlockTask> tasks;
  for (const auto& segment : input.segments)
    for (std::int64_t first = 0; first < segment.length; first += positions)
      for (std::int64_t head = 0; head < input.k.dim(1); ++head)
        tasks.push_back({&segment, head, first});
  // The last blocks see the most keys: they go first, so that no thread is left with a long one.
  std::reverse(tasks.begin(), tasks.end());
  parallel_for(static_cast<std::int64_t>(tasks.size()), [&](std::int64_t index) {
    const auto& task = tasks[static_cast<std::size_t>(index)];
    const auto count = std::min(positions, task.segment->length - task.first);
    QueryBlock(input, *task.segment, task.kv_head, task.first, count).run(z);
  });
}

}  // namespace qkscope
