#include "engine/device/cuda/statistics/score_statistics.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <tuple>

#include <gtest/gtest.h>

#include "attention_case.h"

namespace qkscope {
namespace {

class KeptAttention : public AttentionConsumer {
 public:
  void add(LayerAttentionSums attention) override { parts.push_back(std::move(attention)); }
  std::vector<LayerAttentionSums> parts;
};

// Documents of few different tokens, so that many are equal.
Batch batch_of(const std::vector<std::int32_t>& lengths, std::uint32_t tokens) {
  Batch batch;
  std::mt19937 generator(5);
  for (const auto length : lengths) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(length));
    for (auto& id : ids) id = static_cast<std::int32_t>(generator() % tokens);
    batch.add(ids);
  }
  return batch;
}

cuda::QueriesAndKeys source_of(const FusedRows& rows, std::int64_t window) {
  return {.q = rows.device.get(),
          .k = rows.on_device(rows.k(0, 0)),
          .row_stride = rows.stride,
          .n_heads = rows.heads.n_heads,
          .n_kv_heads = rows.heads.n_kv_heads,
          .d_head = rows.heads.d_head,
          .scale = rows.scale(),
          .window = window,
          .dtype = rows.dtype};
}

LayerAttentionSums on_gpu(const FusedRows& rows, const Batch& batch, std::int64_t window,
                          const AttentionRequest& request,
                          std::int64_t most_value_bytes = std::int64_t{128} << 20) {
  cuda::GpuStream stream;
  cuda::HostTransfers results(stream, 1 << 20);
  cuda::ScoreStatistics statistics(results, stream, most_value_bytes);
  require(cudaDeviceSynchronize());
  const auto source = source_of(rows, window);
  KeptAttention sink;
  statistics.begin_batch(batch);
  statistics.reserve_row_stats(rows.heads.n_heads);
  statistics.compute_row_stats(source);
  statistics.add_layer(source, request, sink);
  results.deliver_all();
  return std::move(sink.parts.at(0));
}

// A row's columns in float64 from the same bits of q and k, and the weights they come from.
struct ExpectedRow {
  std::vector<double> columns;
  std::vector<double> weights;  // of keys [first, row]
  std::int32_t first = 0;       // position
  double largest = 0;           // absolute score
};

ExpectedRow expected_row(const FusedRows& rows, const Batch& batch, const Sequence& sequence,
                         std::int64_t position, std::int64_t head, std::int64_t window,
                         const AttentionColumnLayout& layout) {
  ExpectedRow row;
  const auto at = [&](NearKeyColumn column) -> double& {
    return row.columns[static_cast<std::size_t>(AttentionColumnLayout::offset(column))];
  };
  const auto column = [&](std::int64_t number) -> double& {
    return row.columns[static_cast<std::size_t>(number)];
  };
  row.columns.assign(static_cast<std::size_t>(layout.columns()), 0.0);
  row.first =
      static_cast<std::int32_t>(window > 0 ? std::max<std::int64_t>(0, position - window + 1) : 0);
  const auto begin = static_cast<std::int32_t>(sequence.begin);
  std::vector<double> scores;
  row.weights =
      plain_weights(rows, begin + static_cast<std::int32_t>(position), head, begin + row.first,
                    begin + static_cast<std::int32_t>(position), scores);
  const double most = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (const double score : scores) {
    sum += std::exp(score - most);
    row.largest = std::max(row.largest, std::abs(score));
  }
  const auto token = [&](std::int64_t p) {
    return batch.ids[static_cast<std::size_t>(sequence.begin + p)];
  };
  at(NearKeyColumn::max_logit) = most;
  at(NearKeyColumn::lse) = most + std::log(sum);
  at(NearKeyColumn::top1) = 1 / sum;
  for (std::size_t k = 0; k < row.weights.size(); ++k) {
    const auto j = row.first + static_cast<std::int64_t>(k);
    const double p = row.weights[k];
    const auto distance = position - j;
    const auto width = std::bit_width(static_cast<std::uint64_t>(distance));
    if (j < 4) {
      if (j == 0 && position >= kSinkAboveHalfFrom && p > 0.5)
        column(layout.sink_above_half_column()) = 1;
      column(AttentionColumnLayout::offset(NearKeyColumn::sink_0) + j) = p;
      at(NearKeyColumn::sink_4) += p;
      if (position < 64) column(AttentionColumnLayout::offset(NearKeyColumn::alpha_0) + j) = p;
      if (position == 1 && j == 0) at(NearKeyColumn::prev_first) = p;
    }
    if (distance == 0) at(NearKeyColumn::self) = p;
    if (distance == 1) at(NearKeyColumn::prev) = p;
    if (distance < layout.window) column(layout.near_distance_band_column(width)) += p;
    if (j < layout.stream_first || distance < layout.stream_last) at(NearKeyColumn::stream) += p;
    if (j < position && token(j) == token(position)) {
      at(NearKeyColumn::dup) += p;
      if (j == 0) at(NearKeyColumn::dup_first) += p;
    }
    if (j >= 1 && token(j - 1) == token(position)) {
      at(NearKeyColumn::ind) += p;
      if (j == position) at(NearKeyColumn::ind_self) += p;
    }
    if (!layout.all_keys) continue;
    column(layout.entropy_column()) -= p * (scores[k] - most - std::log(sum));
    column(layout.distance_mean_column()) += p * static_cast<double>(distance);
    column(layout.distance_band_column(std::min<std::int64_t>(width, kDistances - 1))) += p;
  }
  if (!layout.all_keys) return row;
  column(layout.perplexity_column()) = std::exp(column(layout.entropy_column()));
  if (position > 0)
    column(layout.normalized_entropy_column()) =
        column(layout.entropy_column()) / std::log(static_cast<double>(position + 1));
  return row;
}

// How far a column of a row may be off.
double allowed(const AttentionColumnLayout& layout, std::int64_t column, const ExpectedRow& row) {
  const double tau = 2e-6 + 5e-7 * row.largest;
  if (column == AttentionColumnLayout::offset(NearKeyColumn::max_logit) ||
      column == AttentionColumnLayout::offset(NearKeyColumn::lse))
    return 2 * tau;  // scores themselves, sums of up to 256 products in float32
  // Masses of equal tokens are float32 sums over hundreds of keys if a text has two tokens alone.
  if (column == AttentionColumnLayout::offset(NearKeyColumn::dup) ||
      column == AttentionColumnLayout::offset(NearKeyColumn::ind))
    return tau * (1 + row.columns[static_cast<std::size_t>(column)]);
  if (!layout.all_keys) return tau;
  const double entropy = 1e-5 + 1e-6 * row.largest;
  if (column == layout.entropy_column()) return entropy;
  if (column == layout.perplexity_column())
    return 2 * entropy * row.columns[static_cast<std::size_t>(column)];
  if (column == layout.normalized_entropy_column()) return 2 * entropy;
  if (column == layout.distance_mean_column())
    return 1e-9 + std::max(2e-5, tau) * row.columns[static_cast<std::size_t>(column)];
  return tau;
}

// How many of the largest weights hold a share of the mass, and the mass of the largest, must lie
// within the brackets; their mass is counted in steps of 2^-13 of a weight.
void expect_brackets(const AttentionColumnLayout& layout, ExpectedRow row, const double* found) {
  std::sort(row.weights.rbegin(), row.weights.rend());
  constexpr double kSlack = 3e-4;
  for (std::int64_t k = 0; k < kKeyShares; ++k) {
    const auto keys_for = [&](double share) {
      double held = 0;
      double keys = 0;
      for (const double p : row.weights) {
        if (held >= share) break;
        held += p;
        ++keys;
      }
      return keys;
    };
    EXPECT_LE(found[layout.key_count_lower_bound_column(k)], keys_for(kKeyShare[k] + kSlack));
    EXPECT_GE(found[layout.key_count_upper_bound_column(k)], keys_for(kKeyShare[k] - kSlack));
    EXPECT_LE(found[layout.key_count_lower_bound_column(k)],
              found[layout.key_count_upper_bound_column(k)]);
  }
  for (std::int64_t k = 0; k < kTopKeys; ++k) {
    const auto count = std::min(static_cast<std::size_t>(kTopKey[k]), row.weights.size());
    const double mass = std::accumulate(
        row.weights.begin(), row.weights.begin() + static_cast<std::ptrdiff_t>(count), 0.0);
    EXPECT_LE(found[layout.top_mass_lower_bound_column(k)], mass + kSlack);
    EXPECT_GE(found[layout.top_mass_upper_bound_column(k)], mass - kSlack);
  }
}

class ScoreStatistics : public GpuTest<testing::TestWithParam<std::tuple<DType, std::int64_t>>> {
 protected:
  DType dtype() const { return std::get<0>(GetParam()); }
  std::int64_t d_head() const { return std::get<1>(GetParam()); }

  static AttentionRequest per_row(const Batch& batch, bool all_keys, std::int64_t window) {
    AttentionRequest request;
    request.layout.window = window;
    request.layout.all_keys = all_keys;
    request.bucket_size = 1;  // a bucket is a row
    request.buckets = batch.longest();
    return request;
  }

  void expect_rows(const FusedRows& rows, const Batch& batch, std::int64_t window,
                   const AttentionRequest& request, std::int64_t step) {
    const auto found = on_gpu(rows, batch, window, request);
    const auto& layout = request.layout;
    double worst = 0;
    std::int64_t worst_column = 0;
    for (std::size_t document = 0; document < batch.sequences.size(); ++document) {
      const auto& sequence = batch.sequences[document];
      for (std::int64_t i = 0; i < sequence.length; i += i < 70 ? 1 : step)
        for (std::int64_t head = 0; head < rows.heads.n_heads; ++head) {
          const auto row = expected_row(rows, batch, sequence, i, head, window, layout);
          const auto cell =
              (static_cast<std::int64_t>(document) * found.heads + head) * found.buckets + i;
          const double* values = found.sum.data() + cell * found.columns;
          const auto compared =
              layout.all_keys ? layout.key_count_lower_bound_column(0) : layout.columns();
          for (std::int64_t column = 0; column < compared; ++column) {
            const double error =
                std::abs(values[column] - row.columns[static_cast<std::size_t>(column)]);
            const double share = error / allowed(layout, column, row);
            if (!(share <= worst)) {
              worst = std::isfinite(share) ? share : INFINITY;
              worst_column = column;
            }
          }
          if (layout.all_keys) expect_brackets(layout, row, values);
        }
    }
    EXPECT_LE(worst, 1.0) << "column " << worst_column;
    std::printf("  %.3f of the bound at column %lld\n", worst,
                static_cast<long long>(worst_column));
  }
};

// Windows of attention shorter and longer than that of the statistics, packed and alone; tokens
// that occur some fifty times, and two tokens that fill many tiles of keys.
TEST_P(ScoreStatistics, OfNearKeysAreThoseOfFloat64) {
  const HeadShape heads{.n_heads = 4, .n_kv_heads = 2, .d_head = d_head()};
  const FusedRows rows(1200, heads, d_head() % 8 == 0 ? 8 : 3, dtype());
  for (const auto& lengths :
       std::vector<std::vector<std::int32_t>>{{1200}, {1, 2, 63, 64, 65, 129, 300, 576}})
    for (const std::int64_t window : {0, 1, 40, 700})
      for (const auto tokens : {2U, 23U}) {
        SCOPED_TRACE(std::to_string(lengths.size()) + " documents, window " +
                     std::to_string(window) + ", " + std::to_string(tokens) + " tokens");
        const auto batch = batch_of(lengths, tokens);
        expect_rows(rows, batch, window, per_row(batch, false, window == 40 ? 32 : 256), 13);
      }
}

TEST_P(ScoreStatistics, OfAllKeysAreThoseOfFloat64) {
  const HeadShape heads{.n_heads = 4, .n_kv_heads = 2, .d_head = d_head()};
  const FusedRows rows(1200, heads, d_head() % 8 == 0 ? 8 : 3, dtype());
  for (const auto& lengths : std::vector<std::vector<std::int32_t>>{{1200}, {1, 63, 65, 471, 600}})
    for (const std::int64_t window : {0, 200}) {
      SCOPED_TRACE(std::to_string(lengths.size()) + " documents, window " + std::to_string(window));
      const auto batch = batch_of(lengths, 23);
      expect_rows(rows, batch, window, per_row(batch, true, 256), 13);
    }
}

// A sampled query has the values of the same query among all, times its weight, and other queries
// have none; for all heads in one launch, three heads of seven, and one head.
TEST_P(ScoreStatistics, OfSampledQueriesAreThoseOfAllTimesTheirWeights) {
  const HeadShape heads{.n_heads = 7, .n_kv_heads = 1, .d_head = d_head()};
  const FusedRows rows(1600, heads, d_head() % 8 == 0 ? 8 : 3, dtype());
  const auto batch = batch_of({1, 65, 534, 1000}, 23);
  auto request = per_row(batch, true, 256);
  const auto& layout = request.layout;
  const auto all = on_gpu(rows, batch, 0, request);
  const std::vector<std::int64_t> documents = {3, 1, 4, 1};
  request.documents = documents;
  request.sample = {.fraction = 0.3, .seed = 5};
  constexpr std::int64_t kDrawn = 1 + 1 + 2 + 2;  // blocks of 128 queries
  const auto head_bytes =
      kDrawn * kSampledQueries * 4 * (layout.columns() - 1 - layout.entropy_column());
  for (const auto limit : {std::int64_t{128} << 20, 3 * head_bytes, std::int64_t{1}}) {
    SCOPED_TRACE("limit of " + std::to_string(limit) + " bytes");
    const auto found = on_gpu(rows, batch, 0, request, limit);
    EXPECT_TRUE(found.key_sums.empty());
    EXPECT_EQ(found.max_logit, all.max_logit);
    for (std::int64_t document = 0; document < 4; ++document)
      for (std::int64_t head = 0; head < 7; ++head) {
        const auto length = batch.sequences[static_cast<std::size_t>(document)].length;
        const auto weights = request.horvitz_thompson_weights(length, document, head);
        for (std::int64_t i = 0; i < length; ++i)
          for (std::int64_t column = 0; column < layout.columns(); ++column) {
            const double weight = layout.is_all_keys_column(column)
                                      ? weights[static_cast<std::size_t>(i / kSampledQueries)]
                                      : 1.0;
            const auto at = static_cast<std::size_t>(
                ((document * 7 + head) * found.buckets + i) * found.columns + column);
            ASSERT_EQ(found.sum[at], weight * all.sum[at]) << i << " column " << column;
            ASSERT_DOUBLE_EQ(found.square[at], weight * all.square[at]) << i << " " << column;
          }
      }
  }
}

// Sums of keys: each row has mass 1, the sums are those of float64, and three runs have their bits.
TEST_P(ScoreStatistics, OfKeysAddUpToTheRows) {
  const HeadShape heads{.n_heads = 2, .n_kv_heads = 1, .d_head = d_head()};
  const FusedRows rows(700, heads, 8, dtype());
  const auto batch = batch_of({100, 600}, 23);
  auto request = per_row(batch, true, 256);
  request.bucket_size = 200;
  request.buckets = 3;
  const auto found = on_gpu(rows, batch, 0, request);
  ASSERT_EQ(found.key_sums.size(), 1400u);
  std::vector<double> expected(1400);
  for (const auto& sequence : batch.sequences)
    for (std::int64_t i = 0; i < sequence.length; ++i)
      for (std::int64_t head = 0; head < 2; ++head) {
        const auto row = expected_row(rows, batch, sequence, i, head, 0, request.layout);
        for (std::size_t k = 0; k < row.weights.size(); ++k)
          expected[static_cast<std::size_t>(sequence.begin + row.first) * 2 + k * 2 +
                   static_cast<std::size_t>(head)] += row.weights[k];
      }
  const double unit = std::exp2(-40.0);
  double total = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double sum = static_cast<double>(found.key_sums[i]) * unit;
    EXPECT_NEAR(sum, expected[i], 2e-5 * expected[i] + 1e-9) << i;
    total += sum;
  }
  EXPECT_NEAR(total, 1400, 1e-5 * 1400);
  for (int again = 0; again < 2; ++again) {
    const auto same = on_gpu(rows, batch, 0, request);
    EXPECT_EQ(same.key_sums, found.key_sums);
    EXPECT_EQ(same.sum, found.sum);
    EXPECT_EQ(same.square, found.square);
    EXPECT_EQ(same.max_logit, found.max_logit);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, ScoreStatistics,
                         testing::Combine(testing::Values(DType::bf16, DType::f16, DType::f32),
                                          testing::Values(12, 64, 80, 128, 256)),
                         [](const auto& parameters) {
                           return std::string(dtype_name(std::get<0>(parameters.param))) + "_" +
                                  std::to_string(std::get<1>(parameters.param));
                         });

// q and k over `half` different tokens given twice: head 0 looks one past the earlier copy of its
// token, head 1 at the token before.
TEST(PlantedHeads, AreFoundByTheirScores) {
  if (cuda_device_count() == 0) GTEST_SKIP() << why_no_cuda();
  constexpr std::int32_t kHalf = 256, kDim = 128;
  const HeadShape heads{.n_heads = 2, .n_kv_heads = 2, .d_head = kDim};
  FusedRows rows(2 * kHalf, heads, 0, DType::bf16);
  // Every number has a random direction; a key's is that of what is looked for.
  const auto direction = [](std::int32_t number, std::int64_t i) {
    std::uint32_t x =
        static_cast<std::uint32_t>(number) * 2654435761u + static_cast<std::uint32_t>(i) * 40503u;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    return (x & 1u) != 0 ? 1.0f : -1.0f;
  };
  Batch batch;
  std::vector<std::int32_t> ids;
  for (std::int32_t i = 0; i < 2 * kHalf; ++i) ids.push_back(i % kHalf);
  batch.add(ids);
  for (std::int32_t row = 0; row < 2 * kHalf; ++row)
    for (std::int64_t i = 0; i < kDim; ++i) {
      auto* q = const_cast<float*>(rows.q(row, 0));
      auto* k = const_cast<float*>(rows.k(row, 0));
      q[i] = direction(row % kHalf, i);
      k[i] = direction(row == 0 ? -1 : (row - 1) % kHalf, i);  // the token before the key
      q[kDim + i] = direction(1000 + row - 1, i);
      k[kDim + i] = direction(1000 + row, i);
    }
  const DeviceBuffer planted(encoded(rows.values, DType::bf16));
  require(cudaMemcpy(rows.device.get(), planted.get(), rows.values.size() * 2,
                     cudaMemcpyDeviceToDevice));
  AttentionRequest request;
  request.bucket_size = kHalf;
  request.buckets = 2;
  const auto found = on_gpu(rows, batch, 0, request);
  const auto mean = [&](std::int64_t head, NearKeyColumn column) {
    return found.sum[static_cast<std::size_t>((head * 2 + 1) * found.columns +
                                              AttentionColumnLayout::offset(column))] /
           kHalf;
  };
  EXPECT_GT(mean(0, NearKeyColumn::ind), 0.99);
  EXPECT_LT(mean(0, NearKeyColumn::dup), 0.01);
  EXPECT_LT(mean(0, NearKeyColumn::prev), 0.01);
  EXPECT_GT(mean(1, NearKeyColumn::prev), 0.99);
  EXPECT_LT(mean(1, NearKeyColumn::ind), 0.01);
  EXPECT_LT(mean(1, NearKeyColumn::dup), 0.01);
}

// With equal scores the entropy is ln(i + 1), the mean distance i / 2, and a key's sum harmonic.
TEST(EqualScores, HaveKnownSums) {
  if (cuda_device_count() == 0) GTEST_SKIP() << why_no_cuda();
  constexpr std::int32_t kRows = 4096;
  FusedRows rows(kRows, {.n_heads = 1, .n_kv_heads = 1, .d_head = 128}, 0, DType::bf16);
  require(cudaMemset(rows.device.get(), 0, rows.values.size() * 2));
  const auto batch = batch_of({kRows}, 100);
  AttentionRequest request;
  request.layout.all_keys = true;
  request.bucket_size = 1;
  request.buckets = kRows;
  const auto found = on_gpu(rows, batch, 0, request);
  std::vector<double> harmonic(kRows + 1);
  for (std::int32_t i = kRows; i-- > 0;)
    harmonic[static_cast<std::size_t>(i)] =
        harmonic[static_cast<std::size_t>(i + 1)] + 1.0 / (i + 1);
  for (std::int32_t i = 0; i < kRows; ++i) {
    const double* values = found.sum.data() + i * found.columns;
    ASSERT_NEAR(values[request.layout.entropy_column()], std::log(i + 1.0), 1e-5) << i;
    ASSERT_NEAR(values[request.layout.distance_mean_column()], i / 2.0, 2e-5 * i + 1e-9) << i;
    const auto at = static_cast<std::size_t>(i);
    ASSERT_NEAR(static_cast<double>(found.key_sums[at]) * std::exp2(-40.0), harmonic[at],
                2e-5 * harmonic[at]);
  }
}

}  // namespace
}  // namespace qkscope
