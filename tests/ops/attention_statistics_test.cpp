#include "ops/attention_statistics.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "core/index.h"
#include "cpu_targets.h"
#include "ops/replaced_keys.h"
#include "random_tensor.h"

namespace qkscope {
namespace {

constexpr std::int64_t kHeads = 4;
constexpr std::int64_t kKeyHeads = 2;
constexpr std::int64_t kDim = 16;

struct Pass {
  Tensor q, k, v;
  std::vector<Sequence> sequences;
  std::vector<std::int32_t> ids;
  std::int64_t window = 0;
  Tensor z = Tensor();
  std::vector<rows::RunningSoftmax> sums = {};

  AttentionInput input() const {
    return {.q = q, .k = k, .v = v, .sequences = sequences, .scale = 0.25f, .window = window};
  }
  void attend() {
    z = Tensor(q.shape());
    sums.resize(as_index(q.dim(0) * q.dim(1)));
    attention(input(), z, sums);
  }
  LayerAttention statistics(const AttentionRequest& request) const {
    return attention_statistics({input(), sums, ids}, request);
  }
};

Pass random_pass(std::vector<Sequence> sequences, std::int64_t window, float spread = 1.5f) {
  const auto rows = sequences.back().begin + sequences.back().length;
  Pass pass{random_tensor({rows, kHeads, kDim}, 1, spread),
            random_tensor({rows, kKeyHeads, kDim}, 2),
            random_tensor({rows, kKeyHeads, kDim}, 3),
            std::move(sequences),
            {},
            window};
  std::mt19937 random(4);
  for (std::int64_t i = 0; i < rows; ++i)
    pass.ids.push_back(static_cast<std::int32_t>(random() % 40));
  pass.attend();
  return pass;
}

// One bucket for the whole document.
AttentionRequest request(bool all_keys, std::int64_t window = 64) {
  AttentionRequest r;
  r.layout = {.window = window,
              .stream_first = 32,
              .stream_last = 48,
              .all_keys = all_keys,
              .replacements = 0,
              .kept_sets = 0};
  r.bucket_size = 1 << 20;
  r.buckets = 1;
  return r;
}

// A row in float64.
struct PlainRow {
  std::vector<double> s;  // scores, -infinity where masked
  std::vector<double> p;
  double lse = 0;
  double largest = 0;
};

PlainRow plain_row(const Pass& pass, const Sequence& sequence, std::int64_t head, std::int64_t i) {
  PlainRow row;
  const auto key_head = head / (kHeads / kKeyHeads);
  const float* q = pass.q.data<float>() + ((sequence.begin + i) * kHeads + head) * kDim;
  for (std::int64_t j = 0; j <= i; ++j) {
    const float* k = pass.k.data<float>() + ((sequence.begin + j) * kKeyHeads + key_head) * kDim;
    double score = 0;
    for (std::int64_t d = 0; d < kDim; ++d) score += static_cast<double>(q[d]) * k[d];
    const bool seen = pass.window == 0 || i - j < pass.window;
    row.s.push_back(seen ? 0.25 * score : -std::numeric_limits<double>::infinity());
  }
  row.largest = *std::max_element(row.s.begin(), row.s.end());
  double total = 0;
  for (const double s : row.s) total += std::exp(s - row.largest);
  row.lse = row.largest + std::log(total);
  for (const double s : row.s) row.p.push_back(std::exp(s - row.lse));
  return row;
}

// The columns of one row, straight from their definitions.
std::vector<double> plain_columns(const Pass& pass, const Sequence& sequence, std::int64_t head,
                                  std::int64_t i, const ColumnLayout& layout) {
  std::vector<double> v(as_index(layout.columns()));
  const auto row = plain_row(pass, sequence, head, i);
  const auto token = [&](std::int64_t j) { return pass.ids[as_index(sequence.begin + j)]; };
  const auto near = [&](NearColumn column) -> double& {
    return v[as_index(ColumnLayout::at(column))];
  };
  std::vector<double> sorted = row.p;
  for (std::int64_t j = 0; j <= i; ++j) {
    const double p = row.p[as_index(j)];
    const auto width = std::bit_width(static_cast<std::uint64_t>(i - j));
    if (j < 4) {
      v[as_index(ColumnLayout::at(NearColumn::sink_0) + j)] = p;
      near(NearColumn::sink_4) += p;
      if (i < 64) v[as_index(ColumnLayout::at(NearColumn::alpha_0) + j)] = p;
    }
    if (i == j) near(NearColumn::self) = p;
    if (i == j + 1) near(NearColumn::prev) = p;
    if (i == 1 && j == 0) near(NearColumn::prev_first) = p;
    if (j < i && token(j) == token(i)) near(NearColumn::dup) += p;
    if (j == 0 && i > 0 && token(0) == token(i)) near(NearColumn::dup_first) = p;
    if (j >= 1 && token(j - 1) == token(i)) near(NearColumn::ind) += p;
    if (j >= 1 && j == i && token(j - 1) == token(i)) near(NearColumn::ind_self) = p;
    if (j < layout.stream_first || i - j < layout.stream_last) near(NearColumn::stream) += p;
    if (i - j < layout.window) v[as_index(layout.near(width))] += p;
    if (!layout.all_keys || p == 0) continue;
    v[as_index(layout.entropy())] += p * (row.lse - row.s[as_index(j)]);
    v[as_index(layout.distance_mean())] += p * static_cast<double>(i - j);
    v[as_index(layout.dist(std::min<std::int64_t>(width, 17)))] += p;
  }
  near(NearColumn::max_logit) = row.largest;
  near(NearColumn::lse) = row.lse;
  near(NearColumn::top1) = std::exp(row.largest - row.lse);
  if (!layout.all_keys) return v;
  v[as_index(layout.perplexity())] = std::exp(v[as_index(layout.entropy())]);
  v[as_index(layout.entropy_relative())] =
      i == 0 ? 0 : v[as_index(layout.entropy())] / std::log(static_cast<double>(i + 1));
  return v;
}

class AttentionStatisticsTest : public EachCpuTarget {};

// Rows one by one: a document's sums after i + 1 rows less those after i. The bound is tau of
// docs/statistics.md, 2e-6 + 5e-7 of the largest score, for every mass.
TEST_P(AttentionStatisticsTest, NearColumnsAreWithinTauOfFloat64) {
  for (const std::int64_t window : {0, 20, 200}) {
    const auto pass = random_pass({{0, 1}, {1, 300}, {301, 90}}, window);
    auto r = request(false);
    r.bucket_size = 1;  // a bucket for each row
    r.buckets = 300;
    const auto found = pass.statistics(r);
    for (std::int64_t d = 0; d < 3; ++d)
      for (std::int64_t head = 0; head < kHeads; ++head)
        for (std::int64_t i = 0; i < pass.sequences[as_index(d)].length; ++i) {
          const auto expected = plain_columns(pass, pass.sequences[as_index(d)], head, i, r.layout);
          const double* sum =
              found.sum.data() + ((d * kHeads + head) * r.buckets + i) * r.layout.columns();
          const double scores =
              std::abs(expected[as_index(ColumnLayout::at(NearColumn::max_logit))]);
          const double tau = 2e-6 + 5e-7 * std::max(scores, 12.0);
          for (std::int64_t c = 0; c < r.layout.columns(); ++c)
            ASSERT_NEAR(sum[c], expected[as_index(c)], tau * std::max(1.0, scores))
                << "window " << window << ", document " << d << ", head " << head << ", row " << i
                << ", column " << c;
        }
  }
}

TEST_P(AttentionStatisticsTest, AllColumnsAreWithinTheirBounds) {
  for (const std::int64_t window : {0, 50}) {
    const auto pass = random_pass({{0, 40}, {40, 280}}, window);
    auto r = request(true);
    r.bucket_size = 1;
    r.buckets = 280;
    const auto found = pass.statistics(r);
    const auto& layout = r.layout;
    std::vector<double> keys(as_index(320 * kHeads));
    for (std::int64_t d = 0; d < 2; ++d)
      for (std::int64_t head = 0; head < kHeads; ++head)
        for (std::int64_t i = 0; i < pass.sequences[as_index(d)].length; ++i) {
          const auto& sequence = pass.sequences[as_index(d)];
          const auto expected = plain_columns(pass, sequence, head, i, layout);
          const auto row = plain_row(pass, sequence, head, i);
          const double* sum =
              found.sum.data() + ((d * kHeads + head) * r.buckets + i) * layout.columns();
          for (const auto c : {layout.entropy(), layout.entropy_relative()})
            ASSERT_NEAR(sum[c], expected[as_index(c)], 1e-5 + 2e-5);
          ASSERT_NEAR(sum[layout.distance_mean()], expected[as_index(layout.distance_mean())],
                      2e-5 * (1 + expected[as_index(layout.distance_mean())]));
          double mass = 0;
          for (std::int64_t width = 0; width < kDistances; ++width) {
            ASSERT_NEAR(sum[layout.dist(width)], expected[as_index(layout.dist(width))], 6e-6);
            mass += sum[layout.dist(width)];
          }
          ASSERT_NEAR(mass, 1.0, 1e-5) << "every key has a distance";
          auto sorted = row.p;
          std::sort(sorted.begin(), sorted.end(), std::greater<>());
          for (std::int64_t k = 0; k < kTopKeys; ++k) {
            const auto taken = std::min<std::int64_t>(kTopKey[k], std::ssize(sorted));
            const double top = std::accumulate(sorted.begin(), sorted.begin() + taken, 0.0);
            ASSERT_LE(sum[layout.top_low(k)], top + 1e-5);
            ASSERT_GE(sum[layout.top_high(k)], top - 1e-5);
          }
          for (std::int64_t k = 0; k < kKeyShares; ++k) {
            // Not at a tie of the sum with the share.
            double held = 0;
            std::int64_t needed = 0;
            while (held < kKeyShare[k] - 1e-9) held += sorted[as_index(needed++)];
            ASSERT_LE(sum[layout.keys_low(k)], static_cast<double>(needed) + 1);
            ASSERT_GE(sum[layout.keys_high(k)], static_cast<double>(needed) - 1);
          }
          for (std::int64_t j = 0; j <= i; ++j)
            keys[as_index((sequence.begin + j) * kHeads + head)] += row.p[as_index(j)];
        }
    for (std::size_t i = 0; i < keys.size(); ++i)
      ASSERT_NEAR(std::ldexp(static_cast<double>(found.key_sums[i]), -40), keys[i],
                  2e-5 * keys[i] + 1e-9);
  }
}

// Queries of zero look at all keys alike: entropy is ln(i + 1), distance i / 2.
TEST_P(AttentionStatisticsTest, EqualScoresHaveClosedForms) {
  auto pass = random_pass({{0, 200}}, 0);
  std::fill_n(pass.q.data<float>(), pass.q.size(), 0.0f);
  pass.attend();
  auto r = request(true);
  r.bucket_size = 1;
  r.buckets = 200;
  const auto found = pass.statistics(r);
  std::vector<double> harmonic(200);
  for (std::int64_t i = 0; i < 200; ++i) {
    const double* sum = found.sum.data() + i * r.layout.columns();
    EXPECT_NEAR(sum[r.layout.entropy()], std::log(static_cast<double>(i + 1)), 1e-5);
    EXPECT_NEAR(sum[r.layout.distance_mean()], static_cast<double>(i) / 2,
                2e-5 * static_cast<double>(1 + i));
    for (std::int64_t j = 0; j <= i; ++j) harmonic[as_index(j)] += 1.0 / static_cast<double>(i + 1);
  }
  for (std::int64_t j = 0; j < 200; ++j)
    EXPECT_NEAR(std::ldexp(static_cast<double>(found.key_sums[as_index(j * kHeads)]), -40),
                harmonic[as_index(j)], 2e-5 * harmonic[as_index(j)] + 1e-9);
}

TEST_P(AttentionStatisticsTest, NeighboursChangeNoBit) {
  const auto pass = random_pass({{0, 70}, {70, 300}}, 0);
  Pass alone{Tensor({300, kHeads, kDim}),
             Tensor({300, kKeyHeads, kDim}),
             Tensor({300, kKeyHeads, kDim}),
             {{0, 300}},
             {pass.ids.begin() + 70, pass.ids.end()}};
  std::copy_n(pass.q.data<float>() + 70 * kHeads * kDim, alone.q.size(), alone.q.data<float>());
  std::copy_n(pass.k.data<float>() + 70 * kKeyHeads * kDim, alone.k.size(), alone.k.data<float>());
  std::copy_n(pass.v.data<float>() + 70 * kKeyHeads * kDim, alone.v.size(), alone.v.data<float>());
  alone.attend();
  const auto r = request(true);
  const auto packed = pass.statistics(r);
  const auto single = alone.statistics(r);
  EXPECT_TRUE(std::equal(single.sum.begin(), single.sum.end(),
                         packed.sum.begin() + kHeads * r.layout.columns()));
  EXPECT_TRUE(std::equal(single.key_sums.begin(), single.key_sums.end(),
                         packed.key_sums.begin() + 70 * kHeads));
}

// Against float64 with the same replaced keys. K' = K gives 0.
TEST_P(AttentionStatisticsTest, DivergenceOfReplacedKeys) {
  const auto pass = random_pass({{0, 150}}, 0);
  auto r = request(true);
  const std::vector<KeyReplacement> replacements = {
      {.scheme = KeyReplacement::Scheme::fp8, .scale = KeyReplacement::Scale::head, .name = "fp8"},
      {.scheme = KeyReplacement::Scheme::int4,
       .scale = KeyReplacement::Scale::group,
       .group = 8,
       .name = "int4_group_8"}};
  r.replacements = replacements;
  r.layout.replacements = 2;
  r.bucket_size = 1;
  r.buckets = 150;
  const auto found = pass.statistics(r);
  for (std::int64_t head = 0; head < kHeads; ++head)
    for (std::size_t which = 0; which < 2; ++which) {
      const auto key_head = head / (kHeads / kKeyHeads);
      const auto replaced =
          replace_keys({pass.k.data<float>() + key_head * kDim, kKeyHeads * kDim, 150, kDim},
                       replacements[which]);
      auto other = random_pass({{0, 150}}, 0);
      for (std::int64_t j = 0; j < 150; ++j)
        std::copy_n(replaced.keys.data() + j * kDim, kDim,
                    other.k.data<float>() + (j * kKeyHeads + key_head) * kDim);
      for (std::int64_t i = 0; i < 150; ++i) {
        const auto row = plain_row(pass, {0, 150}, head, i);
        const auto changed = plain_row(other, {0, 150}, head, i);
        double kl = 0;
        for (std::int64_t j = 0; j <= i; ++j)
          kl += row.p[as_index(j)] *
                (row.s[as_index(j)] - row.lse - changed.s[as_index(j)] + changed.lse);
        const double value = found.sum[as_index((head * 150 + i) * r.layout.columns() +
                                                r.layout.kl(static_cast<std::int64_t>(which)))];
        ASSERT_NEAR(value, kl, 1e-5 + 1e-4 * kl);
        ASSERT_GE(value, -1e-5);
      }
    }
}

TEST_P(AttentionStatisticsTest, KeptKeysHaveTheirMass) {
  const auto pass = random_pass({{0, 120}}, 0);
  auto r = request(true);
  const std::vector<KeptKeys> kept = {
      {.rule = KeptKeys::Rule::ends, .first = 4, .last = 16, .name = "first_4_last_16"},
      {.rule = KeptKeys::Rule::short_keys, .share = 0.5, .name = "short_50"}};
  r.kept = kept;
  r.layout.kept_sets = 2;
  r.bucket_size = 1;
  r.buckets = 120;
  const auto found = pass.statistics(r);
  const auto shortest = shortest_keys({pass.k.data<float>(), kKeyHeads * kDim, 120, kDim}, 0.5);
  EXPECT_EQ(std::count(shortest.begin(), shortest.end(), 1), 60);
  for (std::int64_t i = 0; i < 120; ++i) {
    const auto row = plain_row(pass, {0, 120}, 0, i);
    double ends = 0;
    double few = 0;
    for (std::int64_t j = 0; j <= i; ++j) {
      if (j < 4 || i - j < 16) ends += row.p[as_index(j)];
      if (shortest[as_index(j)]) few += row.p[as_index(j)];
    }
    const double* sum = found.sum.data() + i * r.layout.columns();
    EXPECT_NEAR(sum[r.layout.kept(0)], ends, 1e-5);
    EXPECT_NEAR(sum[r.layout.kept(1)], few, 1e-5);
    EXPECT_NEAR(sum[r.layout.kl_evicted(0)], -std::log(ends), 1e-5 / ends);
  }
}

TEST_P(AttentionStatisticsTest, LookingChangesNoBitOfThePass) {
  const auto pass = random_pass({{0, 300}}, 0);
  Tensor z(pass.q.shape());
  attention(pass.input(), z);
  EXPECT_TRUE(std::equal(z.data<float>(), z.data<float>() + z.size(), pass.z.data<float>()));
}

QKSCOPE_EACH_CPU_TARGET(AttentionStatisticsTest);

// Planted heads over 64 tokens that come twice: one looks one past the earlier copy, one at the
// token before.
TEST(AttentionStatistics, PlantedHeadsAreFound) {
  constexpr std::int64_t kCopies = 64;
  constexpr std::int64_t n = 2 * kCopies;
  Pass pass{Tensor({n, 2, n}), Tensor({n, 2, n}), Tensor({n, 2, n}), {{0, n}}, {}};
  for (auto* tensor : {&pass.q, &pass.k, &pass.v})
    std::fill_n(tensor->data<float>(), tensor->size(), 0.0f);
  for (std::int64_t i = 0; i < n; ++i) {
    pass.ids.push_back(static_cast<std::int32_t>(i % kCopies));
    const auto at = [&](Tensor& tensor, std::int64_t head, std::int64_t d) -> float& {
      return tensor.data<float>()[(i * 2 + head) * n + d];
    };
    at(pass.k, 0, i) = at(pass.k, 1, i) = 1.0f;
    if (i >= kCopies) at(pass.q, 0, i - kCopies + 1) = 100.0f;
    if (i > 0) at(pass.q, 1, i - 1) = 100.0f;
  }
  pass.attend();
  auto r = request(false);
  r.bucket_size = kCopies;
  r.buckets = 2;
  const auto found = pass.statistics(r);
  const auto mean = [&](std::int64_t head, NearColumn column) {  // over the second half
    return found.sum[as_index((head * 2 + 1) * r.layout.columns() + ColumnLayout::at(column))] /
           kCopies;
  };
  EXPECT_GT(mean(0, NearColumn::ind), 0.99);
  EXPECT_LT(mean(0, NearColumn::dup), 0.01);
  // The last token before the copies looks at the first of them, which is the one before itself.
  EXPECT_LT(mean(0, NearColumn::prev), 0.01);
  EXPECT_GT(mean(1, NearColumn::prev), 0.99);
  EXPECT_LT(mean(1, NearColumn::ind), 0.01);
  EXPECT_LT(mean(1, NearColumn::dup), 0.01);
}

}  // namespace
}  // namespace qkscope
