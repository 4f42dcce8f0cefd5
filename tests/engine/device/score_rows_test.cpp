#include <tuple>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "attention_case.h"
#include "engine/device/cuda/attention/attention.h"

namespace qkscope {
namespace {

struct Squares {
  std::vector<float> scores, pattern;  // (n_heads, queries, keys)
};

Squares kernel_rows(const FusedRows& rows, const Ranges& ranges, std::int64_t keys) {
  const auto& heads = rows.heads;
  const auto count = static_cast<std::int64_t>(ranges.rows.size());
  const auto bytes = static_cast<std::size_t>(heads.n_heads * count * keys) * sizeof(float);
  DeviceBuffer scores(bytes), pattern(bytes);
  scores.poison();
  pattern.poison();
  const DeviceBuffer chosen(ranges.rows), first(ranges.first), last(ranges.last),
      sequence(ranges.sequence);
  cuda::ScoreRowsArguments arguments{{.q = rows.device.get(),
                                      .k = rows.on_device(rows.k(0, 0)),
                                      .row_stride = rows.stride,
                                      .k_stride = rows.stride,
                                      .n_heads = heads.n_heads,
                                      .n_kv_heads = heads.n_kv_heads,
                                      .d_head = heads.d_head,
                                      .scale = rows.scale(),
                                      .dtype = rows.dtype}};
  arguments.rows = chosen.get<std::int32_t>();
  arguments.first_key = first.get<std::int32_t>();
  arguments.last_key = last.get<std::int32_t>();
  arguments.sequence_begin = sequence.get<std::int32_t>();
  arguments.count = count;
  arguments.keys = keys;
  arguments.scores = scores.get<float>();
  arguments.pattern = pattern.get<float>();
  cuda::compute_selected_scores(arguments, nullptr);
  return {scores.download<float>(), pattern.download<float>()};
}

// Sums of up to 512 float32 products of values of order 1, in whatever type these were stored; the
// scores have a standard deviation of 2, so a weight's relative error is that of its score.
constexpr double kTolerance = 2e-5;

void expect_plain(const FusedRows& rows, const Ranges& ranges, std::int64_t keys) {
  const auto result = kernel_rows(rows, ranges, keys);
  const auto count = ranges.rows.size();
  double worst_score = 0.0, worst_weight = 0.0;
  for (std::int64_t head = 0; head < rows.heads.n_heads; ++head)
    for (std::size_t i = 0; i < count; ++i) {
      std::vector<double> scores;
      const auto weights =
          plain_weights(rows, ranges.rows[i], head, ranges.first[i], ranges.last[i], scores);
      const auto row =
          (static_cast<std::size_t>(head) * count + i) * static_cast<std::size_t>(keys);
      const auto from = static_cast<std::size_t>(ranges.first[i] - ranges.sequence[i]);
      for (std::size_t column = 0; column < static_cast<std::size_t>(keys); ++column) {
        const float score = result.scores[row + column], weight = result.pattern[row + column];
        if (column < from || column >= from + weights.size()) {
          ASSERT_EQ(score, -INFINITY) << "query " << i << ", column " << column;
          ASSERT_EQ(weight, 0.0f) << "query " << i << ", column " << column;
          continue;
        }
        ASSERT_TRUE(std::isfinite(score) && std::isfinite(weight));
        worst_score = std::max(worst_score, std::abs(score - scores[column - from]));
        worst_weight = std::max(worst_weight, std::abs(weight - weights[column - from]));
      }
    }
  EXPECT_LE(worst_score, kTolerance);
  EXPECT_LE(worst_weight, kTolerance);
}

class ScoreRows : public GpuTest<testing::TestWithParam<std::tuple<DType, std::int64_t>>> {};

TEST_P(ScoreRows, MatchThePlainSoftmax) {
  const auto [dtype, d_head] = GetParam();
  for (const std::int64_t group : {1, 2, 8}) {
    SCOPED_TRACE("queries per key head: " + std::to_string(group));
    const HeadShape heads{.n_heads = 2 * group, .n_kv_heads = 2, .d_head = d_head};
    const FusedRows rows(495, heads, 3, dtype);
    for (const std::int32_t window : {0, 20}) {
      const Mask mask{
          .name = "", .sequences = {1, 2, 63, 64, 65, 300}, .window = window, .every = 13};
      expect_plain(rows, ranges_of(mask), 300);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, ScoreRows,
                         testing::Combine(testing::Values(DType::bf16, DType::f16, DType::f32),
                                          testing::Values(8, 12, 64, 80, 128, 256, 512)),
                         [](const auto& given) {
                           return fmt::format("{}_{}", dtype_name(std::get<0>(given.param)),
                                              std::get<1>(given.param));
                         });

class ScoreRowsOfLongSequences : public GpuTest<> {};

TEST_F(ScoreRowsOfLongSequences, MatchThePlainSoftmax) {
  constexpr std::int32_t kKeys = 140000;
  const FusedRows rows(kKeys + 5, {.n_heads = 2, .n_kv_heads = 1, .d_head = 16}, 0, DType::bf16);
  const Ranges ranges{.rows = {kKeys + 4, 70005},
                      .first = {5, 70005 - 999},
                      .last = {kKeys + 4, 70005},
                      .sequence = {5, 5}};
  expect_plain(rows, ranges, kKeys);
}

}  // namespace
}  // namespace qkscope
