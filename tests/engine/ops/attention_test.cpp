#include "engine/ops/attention.h"

#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cpu_targets.h"
#include "random_tensor.h"

namespace qkscope {
namespace {

struct AttentionShape {
  std::int64_t n_heads, n_kv_heads, d_head, window;
};

struct Qkv {
  Tensor q, k, v;
};

const std::vector<Sequence> kSequences = {{0, 1}, {1, 300}, {301, 16}, {317, 257}};
constexpr std::int64_t kRows = 574;

Qkv random_qkv(const AttentionShape& shape) {
  return {random_tensor({kRows, shape.n_heads, shape.d_head}, 1, 1.5f),
          random_tensor({kRows, shape.n_kv_heads, shape.d_head}, 2),
          random_tensor({kRows, shape.n_kv_heads, shape.d_head}, 3)};
}

// Reference: softmax attention of one query in float64; `weights` has one entry per key position.
std::vector<double> plain_row(const AttentionInput& input, const Sequence& sequence,
                              std::int64_t position, std::int64_t head,
                              std::vector<double>& weights) {
  const auto d = input.q.dim(2);
  const auto kv_head = head / (input.q.dim(1) / input.k.dim(1));
  const auto at = [&](ConstTensorView tensor, std::int64_t p, std::int64_t h) {
    return tensor.data<float>() + ((sequence.begin + p) * tensor.dim(1) + h) * tensor.dim(2);
  };
  weights.assign(static_cast<std::size_t>(sequence.length), 0.0);
  double total = 0.0;
  for (std::int64_t key = 0; key <= position; ++key) {
    if (input.window > 0 && position - key >= input.window) continue;
    if (input.chunk > 0 && position / input.chunk != key / input.chunk) continue;
    double score = 0.0;
    for (std::int64_t i = 0; i < d; ++i)
      score += static_cast<double>(at(input.q, position, head)[i]) * at(input.k, key, kv_head)[i];
    score *= input.scale;
    if (input.softcap > 0.0f) score = input.softcap * std::tanh(score / input.softcap);
    total += weights[static_cast<std::size_t>(key)] = std::exp(score);
  }
  if (!input.sinks.empty()) total += std::exp(input.sinks[static_cast<std::size_t>(head)]);
  std::vector<double> z(static_cast<std::size_t>(input.v.dim(2)), 0.0);
  for (std::int64_t key = 0; key <= position; ++key) {
    weights[static_cast<std::size_t>(key)] /= total;
    for (std::int64_t i = 0; i < input.v.dim(2); ++i)
      z[static_cast<std::size_t>(i)] +=
          weights[static_cast<std::size_t>(key)] * at(input.v, key, kv_head)[i];
  }
  return z;
}

// Error bound of sums of up to 300 float32 terms of order 1.
void expect_plain_softmax(const AttentionInput& input) {
  const auto n_heads = input.q.dim(1);
  const auto d_value = input.v.dim(2);
  Tensor z({kRows, n_heads, d_value});
  compute_attention(input, z);
  std::vector<std::int64_t> rows;
  for (std::int64_t row = 0; row < kRows; row += 7) rows.push_back(row);
  Tensor scores({n_heads, static_cast<std::int64_t>(rows.size()), 300});
  Tensor pattern(scores.shape());
  compute_row_scores(input, rows, scores, pattern);

  double worst = 0.0;
  std::vector<double> weights;
  for (const auto& sequence : kSequences)
    for (std::int64_t position = 0; position < sequence.length; ++position) {
      const auto row = sequence.begin + position;
      for (std::int64_t head = 0; head < n_heads; ++head) {
        const auto expected = plain_row(input, sequence, position, head, weights);
        for (std::int64_t i = 0; i < d_value; ++i)
          worst = std::max(worst, std::abs(expected[static_cast<std::size_t>(i)] -
                                           z.data<float>()[(row * n_heads + head) * d_value + i]));
        if (row % 7 != 0) continue;
        const auto offset = (head * scores.dim(1) + row / 7) * 300;
        for (std::int64_t key = 0; key < sequence.length; ++key) {
          const double weight = weights[static_cast<std::size_t>(key)];
          worst = std::max(worst, std::abs(weight - pattern.data<float>()[offset + key]));
          EXPECT_EQ(std::isinf(scores.data<float>()[offset + key]), weight == 0.0);
        }
      }
    }
  EXPECT_LT(worst, 5e-6);
}

class Attention : public testing::TestWithParam<AttentionShape> {};

TEST_P(Attention, MatchesPlainSoftmaxAttention) {
  const auto& shape = GetParam();
  const auto qkv = random_qkv(shape);
  const AttentionInput input{.q = qkv.q,
                             .k = qkv.k,
                             .v = qkv.v,
                             .sequences = kSequences,
                             .scale = 1.0f / std::sqrt(static_cast<float>(shape.d_head)),
                             .window = shape.window};
  for_each_cpu_target([&](const std::string&) { expect_plain_softmax(input); });
}

TEST_P(Attention, ValuesMayHaveAnotherWidthThanKeys) {
  const auto& shape = GetParam();
  const auto qkv = random_qkv(shape);
  for (const std::int64_t d_value : {shape.d_head + 9, shape.d_head / 2 + 1}) {
    const auto v = random_tensor({kRows, shape.n_kv_heads, d_value}, 5);
    const AttentionInput input{.q = qkv.q,
                               .k = qkv.k,
                               .v = v,
                               .sequences = kSequences,
                               .scale = 1.0f / std::sqrt(static_cast<float>(shape.d_head)),
                               .window = shape.window};
    for_each_cpu_target([&](const std::string&) { expect_plain_softmax(input); });
  }
}

TEST_P(Attention, QueriesOfAChunkSeeItsKeysOnly) {
  const auto& shape = GetParam();
  const auto qkv = random_qkv(shape);
  for (const std::int64_t chunk : {1, 48, 256, 290}) {
    const AttentionInput input{.q = qkv.q,
                               .k = qkv.k,
                               .v = qkv.v,
                               .sequences = kSequences,
                               .scale = 1.0f / std::sqrt(static_cast<float>(shape.d_head)),
                               .window = shape.window,
                               .chunk = chunk};
    for_each_cpu_target([&](const std::string&) { expect_plain_softmax(input); });
  }
}

TEST_P(Attention, MatchesPlainSoftmaxAttentionWithSoftCap) {
  const auto& shape = GetParam();
  const auto qkv = random_qkv(shape);
  const AttentionInput input{.q = qkv.q,
                             .k = qkv.k,
                             .v = qkv.v,
                             .sequences = kSequences,
                             .scale = 1.0f,
                             .window = shape.window,
                             .softcap = 2.5f};
  for_each_cpu_target([&](const std::string&) { expect_plain_softmax(input); });
}

TEST_P(Attention, ASinkAddsToTheSoftmaxSumOnly) {
  const auto& shape = GetParam();
  const auto qkv = random_qkv(shape);
  const auto sinks = random_tensor({shape.n_heads}, 4, 3.0f);
  const AttentionInput input{
      .q = qkv.q,
      .k = qkv.k,
      .v = qkv.v,
      .sequences = kSequences,
      .scale = 1.0f / std::sqrt(static_cast<float>(shape.d_head)),
      .window = shape.window,
      .sinks = {sinks.data<float>(), static_cast<std::size_t>(shape.n_heads)}};
  for_each_cpu_target([&](const std::string&) { expect_plain_softmax(input); });
}

// Neither other queries nor other sequences change a bit of a row.
TEST_P(Attention, ARowHasTheSameBitsAmongOthersAndAlone) {
  const auto& shape = GetParam();
  const auto qkv = random_qkv(shape);
  AttentionInput input{.q = qkv.q,
                       .k = qkv.k,
                       .v = qkv.v,
                       .sequences = kSequences,
                       .scale = 0.3f,
                       .window = shape.window};
  const auto width = static_cast<std::size_t>(shape.n_heads * shape.d_head);
  for_each_cpu_target([&](const std::string&) {
    Tensor whole(input.q.shape());
    compute_attention(input, whole);
    const auto row_is = [&](ConstTensorView z, std::int64_t at, std::int64_t row) {
      return std::memcmp(z.rows(at, at + 1).bytes(), whole.view().rows(row, row + 1).bytes(),
                         width * sizeof(float)) == 0;
    };
    const std::vector<std::int64_t> rows = {0, 7, 270, 300, 301, 316, 500, 573};
    Tensor q({std::ssize(rows), shape.n_heads, shape.d_head});
    for (std::size_t i = 0; i < rows.size(); ++i)
      std::memcpy(q.data<float>() + i * width,
                  qkv.q.data<float>() + static_cast<std::size_t>(rows[i]) * width,
                  width * sizeof(float));
    Tensor chosen(q.shape());
    auto some = input;
    some.q = q;
    some.queries = rows;
    compute_attention(some, chosen);
    for (std::size_t i = 0; i < rows.size(); ++i)
      EXPECT_TRUE(row_is(chosen, static_cast<std::int64_t>(i), rows[i])) << rows[i];

    const std::vector<Sequence> last = {{0, 257}};
    auto alone = input;
    alone.q = qkv.q.view().rows(317, kRows);
    alone.k = qkv.k.view().rows(317, kRows);
    alone.v = qkv.v.view().rows(317, kRows);
    alone.sequences = last;
    Tensor z(alone.q.shape());
    compute_attention(alone, z);
    for (std::int64_t row = 0; row < 257; ++row) EXPECT_TRUE(row_is(z, row, 317 + row)) << row;
  });
}

std::string shape_name(const testing::TestParamInfo<AttentionShape>& info) {
  const auto& [n_heads, n_kv_heads, d_head, window] = info.param;
  return fmt::format("{}_and_{}_heads_of_{}_window_{}", n_heads, n_kv_heads, d_head, window);
}
INSTANTIATE_TEST_SUITE_P(Shapes, Attention,
                         testing::Values(AttentionShape{4, 4, 16, 0}, AttentionShape{6, 2, 8, 0},
                                         AttentionShape{9, 3, 64, 0}, AttentionShape{4, 1, 12, 5},
                                         AttentionShape{2, 2, 20, 256},
                                         AttentionShape{8, 2, 16, 100}, AttentionShape{1, 1, 3, 1}),
                         shape_name);

}  // namespace
}  // namespace qkscope
