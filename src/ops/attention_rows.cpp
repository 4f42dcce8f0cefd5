#include "ops/attention_rows.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "core/thread_pool.h"
#include "ops/vector_math.h"

namespace qkscope {
namespace {

const Segment& segment_of(std::span<const Segment> segments, std::int64_t row) {
  const auto after =
      std::upper_bound(segments.begin(), segments.end(), row,
                       [](std::int64_t value, const Segment& s) { return value < s.begin; });
  return *(after - 1);
}

// One row of scores against all keys of its segment; returns the visible range [begin, end).
std::pair<std::int64_t, std::int64_t> score_row(const AttentionInput& input, std::int64_t head,
                                                std::int64_t row, std::span<float> scores) {
  const auto& segment = segment_of(input.segments, row);
  const auto position = row - segment.begin;
  const auto d = input.q.dim(2);
  const auto n_kv = input.k.dim(1);
  const auto kv_head = head / (input.q.dim(1) / n_kv);
  const float* q = input.q.data<float>() + (row * input.q.dim(1) + head) * d;
  const auto begin = first_visible_key(position, input.window);
  std::fill(scores.begin(), scores.end(), -std::numeric_limits<float>::infinity());
  for (auto key = begin; key <= position; ++key) {
    const float* k = input.k.data<float>() + ((segment.begin + key) * n_kv + kv_head) * d;
    scores[static_cast<std::size_t>(key)] =
        input.scale * lane_sum(d, [&](std::int64_t i) { return q[i] * k[i]; });
  }
  return {begin, position + 1};
}

void softmax(std::span<const float> scores, std::int64_t begin, std::int64_t end,
             std::span<float> pattern) {
  std::fill(pattern.begin(), pattern.end(), 0.0f);
  const auto* s = scores.data() + begin;
  auto* p = pattern.data() + begin;
  const auto count = end - begin;
  const float highest = lane_max(count, s[0], [=](std::int64_t i) { return s[i]; });
  for (std::int64_t i = 0; i < count; ++i) p[i] = exp_approx(s[i] - highest);
  const float factor = 1.0f / lane_sum(count, [&](std::int64_t i) { return p[i]; });
  for (std::int64_t i = 0; i < count; ++i) p[i] *= factor;
}

}  // namespace

void attention_rows(const AttentionInput& input, std::span<const std::int64_t> rows,
                    TensorView scores, TensorView pattern) {
  const auto n_heads = input.q.dim(1);
  const auto count = static_cast<std::int64_t>(rows.size());
  const auto keys = (scores.empty() ? pattern : scores).dim(2);
  parallel_for(n_heads * count, [&](std::int64_t index) {
    const auto width = static_cast<std::size_t>(keys);
    thread_local std::vector<float> buffer;
    buffer.resize(width);
    const auto at = [&](TensorView tensor) {
      return std::span(tensor.data<float>() + index * keys, width);
    };
    const auto row_scores = scores.empty() ? std::span(buffer) : at(scores);
    const auto [begin, end] =
        score_row(input, index / count, rows[static_cast<std::size_t>(index % count)], row_scores);
    if (!pattern.empty()) softmax(row_scores, begin, end, at(pattern));
  });
}

}  // namespace qkscope
