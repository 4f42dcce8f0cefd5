#include "engine/ops/score_rows.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "base/core/numbers.h"
#include "base/core/thread_pool.h"
#include "engine/ops/row_kernels.h"

namespace qkscope {
namespace {

// Returns the index of the sequence that holds a row of q.
std::size_t sequence_of(std::span<const Sequence> sequences, std::int64_t row) {
  const auto after =
      std::upper_bound(sequences.begin(), sequences.end(), row,
                       [](std::int64_t value, const Sequence& s) { return value < s.begin; });
  return as_index(after - sequences.begin()) - 1;
}

// Computes one row of scores against its sequence. Returns the visible range [begin, end).
std::pair<std::int64_t, std::int64_t> score_row(const AttentionInput& input, std::int64_t head,
                                                std::int64_t row, std::span<float> scores) {
  const auto number = sequence_of(input.sequences, row);
  const auto& sequence = input.sequences[number];
  const auto position = sequence.past + row - sequence.begin;
  const auto d = input.q.dim(2);
  const auto n_kv = input.k.dim(1);
  const auto kv_head = head / (input.q.dim(1) / n_kv);
  const float* q = input.q.data<float>() + (row * input.q.dim(1) + head) * d;
  const auto begin = first_visible_key(position, input.window);
  std::fill(scores.begin(), scores.end(), -std::numeric_limits<float>::infinity());
  const auto key_row = first_key_row(input.sequences, number) + begin;
  const float* k = input.k.data<float>() + (key_row * n_kv + kv_head) * d;
  rows::dots({q, k, n_kv * d, position + 1 - begin, d}, input.scale, scores.data() + begin);
  if (input.softcap > 0.0f)
    rows::soft_cap(scores.data() + begin, position + 1 - begin, input.softcap);
  return {begin, position + 1};
}

// A sink is one additional score of the softmax without an entry in the pattern.
void softmax_with_sink(std::span<const float> scores, float sink, float* pattern) {
  thread_local std::vector<float> joined;
  joined.assign(scores.begin(), scores.end());
  joined.push_back(sink);
  rows::softmax(joined.data(), std::ssize(joined), joined.data());
  std::copy_n(joined.begin(), scores.size(), pattern);
}

void softmax(const AttentionInput& input, std::int64_t head, std::span<const float> scores,
             std::pair<std::int64_t, std::int64_t> visible, std::span<float> pattern) {
  const auto [begin, end] = visible;
  std::fill(pattern.begin(), pattern.end(), 0.0f);
  if (input.sinks.empty())
    rows::softmax(scores.data() + begin, end - begin, pattern.data() + begin);
  else
    softmax_with_sink(scores.subspan(as_index(begin), as_index(end - begin)),
                      input.sinks[as_index(head)], pattern.data() + begin);
}

// Calls body(row of an output tensor, head, row of q) for each head and selected row.
template <typename Body>
void for_each_row(const AttentionInput& input, std::span<const std::int64_t> rows, Body body) {
  const auto count = static_cast<std::int64_t>(rows.size());
  parallel_for(input.q.dim(1) * count, [&](std::int64_t index) {
    body(index, index / count, rows[as_index(index % count)]);
  });
}

// Row `index` of a (n_heads, rows, keys) tensor; empty for an empty tensor.
template <typename View>
auto row_of(View tensor, std::int64_t index) {
  return std::span(tensor.template data<float>() + index * tensor.dim(2), as_index(tensor.dim(2)));
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

// Pattern of one row after edits.
struct EditedPattern {
  std::vector<float> pattern;  // (keys)
  bool changed = false;        // differs from the unedited row
};

// Computes the unedited row and applies edited scores and pattern (keys), each unless empty.
EditedPattern edited_pattern(const AttentionInput& input, std::int64_t head, std::int64_t row,
                             std::span<const float> scores, std::span<const float> pattern) {
  std::vector<float> unedited(std::max(scores.size(), pattern.size()));
  EditedPattern edited{std::vector<float>(unedited.size())};
  softmax(input, head, unedited, score_row(input, head, row, unedited), edited.pattern);
  if (!scores.empty() && !same_bits(scores, unedited)) {
    edited.changed = true;
    softmax(input, head, scores, {0, std::ssize(scores)}, edited.pattern);
  }
  if (!pattern.empty() && !same_bits(pattern, edited.pattern)) {
    edited.changed = true;
    edited.pattern.assign(pattern.begin(), pattern.end());
  }
  return edited;
}

void weighted_values(const AttentionInput& input, std::int64_t head, std::int64_t row,
                     std::span<const float> pattern, TensorView z) {
  const auto number = sequence_of(input.sequences, row);
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

void score_rows(const AttentionInput& input, std::span<const std::int64_t> rows, TensorView scores,
                TensorView pattern) {
  const auto keys = as_index((scores.empty() ? pattern : scores).dim(2));
  for_each_row(input, rows, [&](std::int64_t index, std::int64_t head, std::int64_t row) {
    thread_local std::vector<float> buffer;
    buffer.resize(keys);
    const auto row_scores = scores.empty() ? std::span(buffer) : row_of(scores, index);
    const auto visible = score_row(input, head, row, row_scores);
    if (!pattern.empty()) softmax(input, head, row_scores, visible, row_of(pattern, index));
  });
}

void pattern_of_edited_scores(const AttentionInput& input, std::span<const std::int64_t> rows,
                              ConstTensorView scores, TensorView pattern) {
  if (pattern.empty()) return;
  for_each_row(input, rows, [&](std::int64_t index, std::int64_t head, std::int64_t row) {
    const auto edited = edited_pattern(input, head, row, row_of(scores, index), {});
    std::ranges::copy(edited.pattern, row_of(pattern, index).begin());
  });
}

void attend_edited_rows(const AttentionInput& input, std::span<const std::int64_t> rows,
                        ConstTensorView scores, ConstTensorView pattern, TensorView z) {
  for_each_row(input, rows, [&](std::int64_t index, std::int64_t head, std::int64_t row) {
    const auto edited =
        edited_pattern(input, head, row, row_of(scores, index), row_of(pattern, index));
    if (edited.changed) weighted_values(input, head, row, edited.pattern, z);
  });
}

}  // namespace qkscope
