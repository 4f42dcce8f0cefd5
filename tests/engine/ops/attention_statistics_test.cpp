#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <sstream>

#include <gtest/gtest.h>

#include "base/core/numbers.h"
#include "cpu_targets.h"
#include "engine/ops/attention.h"
#include "engine/ops/replaced_keys.h"
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
  float softcap = 0.0f;
  Tensor z = Tensor();
  std::vector<rows::RunningSoftmax> sums = {};

  AttentionInput input() const {
    return {.q = q,
            .k = k,
            .v = v,
            .sequences = sequences,
            .scale = 0.25f,
            .window = window,
            .softcap = softcap};
  }
  void attend() {
    z = Tensor(q.shape());
    sums.resize(as_index(q.dim(0) * q.dim(1)));
    compute_attention(input(), z, sums);
  }
  LayerAttentionSums statistics(const AttentionRequest& request) const {
    return compute_attention_statistics({input(), sums, ids}, request);
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

// A request with one bucket for the whole document.
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

// Attention of one row in float64.
struct PlainRow {
  std::vector<double> s;  // scores, -infinity where masked
  std::vector<double> p;
  double lse = 0;
  double largest = 0;
  double size = 0;  // the largest score in absolute value
};

PlainRow plain_row(const Pass& pass, const Sequence& sequence, std::int64_t head, std::int64_t i) {
  PlainRow row;
  const auto heads = pass.q.dim(1);
  const auto key_heads = pass.k.dim(1);
  const auto dim = pass.q.dim(2);
  const auto key_head = head / (heads / key_heads);
  const float* q = pass.q.data<float>() + ((sequence.begin + i) * heads + head) * dim;
  for (std::int64_t j = 0; j <= i; ++j) {
    const float* k = pass.k.data<float>() + ((sequence.begin + j) * key_heads + key_head) * dim;
    double score = 0;
    for (std::int64_t d = 0; d < dim; ++d) score += static_cast<double>(q[d]) * k[d];
    score *= 0.25;
    if (pass.softcap > 0.0f) score = pass.softcap * std::tanh(score / pass.softcap);
    const bool seen = pass.window == 0 || i - j < pass.window;
    row.s.push_back(seen ? score : -std::numeric_limits<double>::infinity());
    if (seen) row.size = std::max(row.size, std::abs(score));
  }
  row.largest = *std::max_element(row.s.begin(), row.s.end());
  double total = 0;
  for (const double s : row.s) total += std::exp(s - row.largest);
  row.lse = row.largest + std::log(total);
  for (const double s : row.s) row.p.push_back(std::exp(s - row.lse));
  return row;
}

// Computes the columns of one row directly from their definitions.
std::vector<double> plain_columns(const Pass& pass, const Sequence& sequence, std::int64_t i,
                                  const PlainRow& row, const AttentionColumnLayout& layout) {
  std::vector<double> v(as_index(layout.columns()));
  const auto token = [&](std::int64_t j) { return pass.ids[as_index(sequence.begin + j)]; };
  const auto near = [&](NearKeyColumn column) -> double& {
    return v[as_index(AttentionColumnLayout::offset(column))];
  };
  for (std::int64_t j = 0; j <= i; ++j) {
    const double p = row.p[as_index(j)];
    const auto width = static_cast<std::int64_t>(std::bit_width(static_cast<std::uint64_t>(i - j)));
    if (j < 4) {
      if (j == 0 && i >= kSinkAboveHalfFrom && p > 0.5)
        v[as_index(layout.sink_above_half_column())] = 1;
      v[as_index(AttentionColumnLayout::offset(NearKeyColumn::sink_0) + j)] = p;
      near(NearKeyColumn::sink_4) += p;
      if (i < 64) v[as_index(AttentionColumnLayout::offset(NearKeyColumn::alpha_0) + j)] = p;
    }
    if (i == j) near(NearKeyColumn::self) = p;
    if (i == j + 1) near(NearKeyColumn::prev) = p;
    if (i == 1 && j == 0) near(NearKeyColumn::prev_first) = p;
    if (j < i && token(j) == token(i)) near(NearKeyColumn::dup) += p;
    if (j == 0 && i > 0 && token(0) == token(i)) near(NearKeyColumn::dup_first) = p;
    if (j >= 1 && token(j - 1) == token(i)) near(NearKeyColumn::ind) += p;
    if (j >= 1 && j == i && token(j - 1) == token(i)) near(NearKeyColumn::ind_self) = p;
    if (j < layout.stream_first || i - j < layout.stream_last) near(NearKeyColumn::stream) += p;
    if (i - j < layout.window) v[as_index(layout.near_distance_band_column(width))] += p;
    if (!layout.all_keys || p == 0) continue;
    v[as_index(layout.entropy_column())] += p * (row.lse - row.s[as_index(j)]);
    v[as_index(layout.distance_mean_column())] += p * static_cast<double>(i - j);
    v[as_index(layout.distance_band_column(std::min<std::int64_t>(width, 17)))] += p;
  }
  near(NearKeyColumn::max_logit) = row.largest;
  near(NearKeyColumn::lse) = row.lse;
  near(NearKeyColumn::top1) = std::exp(row.largest - row.lse);
  if (!layout.all_keys) return v;
  v[as_index(layout.perplexity_column())] = std::exp(v[as_index(layout.entropy_column())]);
  v[as_index(layout.normalized_entropy_column())] =
      i == 0 ? 0 : v[as_index(layout.entropy_column())] / std::log(static_cast<double>(i + 1));
  return v;
}

class AttentionStatisticsTest : public EachCpuTarget {};

// A request with one bucket per row, so that sums are single rows.
AttentionRequest request_of_rows(const Pass& pass, bool all_keys, std::int64_t window = 64) {
  auto r = request(all_keys, window);
  r.bucket_size = 1;
  for (const auto& sequence : pass.sequences) r.buckets = std::max(r.buckets, sequence.length);
  return r;
}

// Largest differences from float64, relative to the bounds of docs/reference/statistics.md.
struct Worst {
  double mass = 0;
  double near_mean = 0;  // of a mass, over the rows of a head
  double rest = 0;       // near, and what is farther away, add up to 1
  double dist = 0;
  double entropy = 0;
  double distance = 0;
  double total = 0;  // dist adds up to 1
  double top = 0;    // outside its bracket
  double keys = 0;   // outside its bracket, in keys
  double sums = 0;   // of keys add up to the number of rows
};

void grow(double& worst, double difference, double bound) {
  worst = std::max(worst, std::abs(difference) / bound);
}

// Distance of the true value from the interval [low, high].
double outside(double value, double low, double high) {
  return std::max({0.0, low - value, value - high});
}

void compare_all_keys(const AttentionColumnLayout& layout, const double* found,
                      std::span<const double> expected, const PlainRow& row, Worst& worst) {
  const double tau = 2e-6 + 5e-7 * row.size;
  const auto difference = [&](std::int64_t c) { return found[c] - expected[as_index(c)]; };
  const double entropy_bound = 1e-5 + 1e-6 * row.size;
  grow(worst.entropy, difference(layout.entropy_column()), entropy_bound);
  grow(worst.entropy, difference(layout.normalized_entropy_column()), entropy_bound);
  grow(worst.entropy, difference(layout.perplexity_column()),
       entropy_bound * expected[as_index(layout.perplexity_column())]);
  grow(worst.distance, difference(layout.distance_mean_column()),
       2e-5 * expected[as_index(layout.distance_mean_column())] + 1e-9);
  double mass = 0;
  for (std::int64_t width = 0; width < kDistances; ++width) {
    grow(worst.dist, difference(layout.distance_band_column(width)), row.size < 20 ? 1e-6 : tau);
    mass += found[layout.distance_band_column(width)];
  }
  grow(worst.total, mass - 1.0, tau);
  auto sorted = row.p;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  for (std::int64_t k = 0; k < kTopKeys; ++k) {
    const auto taken = std::min<std::int64_t>(kTopKey[k], std::ssize(sorted));
    const double top = std::accumulate(sorted.begin(), sorted.begin() + taken, 0.0);
    grow(worst.top,
         outside(top, found[layout.top_mass_lower_bound_column(k)],
                 found[layout.top_mass_upper_bound_column(k)]),
         tau);
  }
  for (std::int64_t k = 0; k < kKeyShares; ++k) {
    double held = 0;
    std::int64_t needed = 0;
    while (held < kKeyShare[k] - 1e-9) held += sorted[as_index(needed++)];
    worst.keys = std::max(worst.keys, outside(static_cast<double>(needed),
                                              found[layout.key_count_lower_bound_column(k)],
                                              found[layout.key_count_upper_bound_column(k)]));
  }
}

// Compares every `step`th row of the given heads. Adds the weights of the rows to key_sums (rows of
// the batch, heads), if given.
Worst compare_rows(const Pass& pass, const AttentionRequest& r, std::span<const std::int64_t> heads,
                   std::int64_t step = 1, std::vector<double>* key_sums = nullptr) {
  const auto found = pass.statistics(r);
  const auto& layout = r.layout;
  Worst worst;
  for (std::int64_t d = 0; d < std::ssize(pass.sequences); ++d)
    for (const auto head : heads) {
      const auto& sequence = pass.sequences[as_index(d)];
      std::vector<double> means(as_index(layout.near_key_column_count()));
      for (auto i = (sequence.length - 1) % step; i < sequence.length; i += step) {
        const auto row = plain_row(pass, sequence, head, i);
        const auto expected = plain_columns(pass, sequence, i, row, layout);
        const double* sum =
            found.sum.data() + ((d * found.heads + head) * r.buckets + i) * layout.columns();
        const double tau = 2e-6 + 5e-7 * row.size;
        double near = 0;
        double far = 0;
        for (std::int64_t c = 0; c < layout.near_key_column_count(); ++c) {
          grow(worst.mass, sum[c] - expected[as_index(c)], tau);
          means[as_index(c)] +=
              (sum[c] - expected[as_index(c)]) / static_cast<double>(sequence.length);
          if (c >= layout.near_distance_band_column(0)) near += sum[c];
        }
        for (std::int64_t j = 0; j <= i - layout.window; ++j) far += row.p[as_index(j)];
        grow(worst.rest, near + far - 1.0, tau);
        if (layout.all_keys) compare_all_keys(layout, sum, expected, row, worst);
        if (key_sums != nullptr)
          for (std::int64_t j = 0; j <= i; ++j)
            (*key_sums)[as_index((sequence.begin + j) * found.heads + head)] += row.p[as_index(j)];
      }
      std::int64_t all = 0;
      for (std::int64_t j = 0; j < sequence.length && layout.all_keys; ++j)
        all += found.key_sums[as_index((sequence.begin + j) * found.heads + head)];
      const auto n = static_cast<double>(sequence.length);
      if (layout.all_keys)
        grow(worst.sums, std::ldexp(static_cast<double>(all), -40) - n, 1e-5 * n);
      for (std::int64_t c = 0; c < layout.near_key_column_count(); ++c)
        if (c != AttentionColumnLayout::offset(NearKeyColumn::lse) &&
            c != AttentionColumnLayout::offset(NearKeyColumn::max_logit))
          grow(worst.near_mean, means[as_index(c)], 1e-6);
    }
  return worst;
}

void expect_within(const Worst& worst) {
  EXPECT_LE(worst.mass, 1.0);
  EXPECT_LE(worst.near_mean, 1.0);
  EXPECT_LE(worst.rest, 1.0);
  EXPECT_LE(worst.dist, 1.0);
  EXPECT_LE(worst.entropy, 1.0);
  EXPECT_LE(worst.distance, 1.0);
  EXPECT_LE(worst.total, 1.0);
  EXPECT_LE(worst.top, 1.0);
  EXPECT_LE(worst.sums, 1.0);
  EXPECT_LE(worst.keys, 1.0) << "where a sum ties with the share";
  std::ostringstream said;
  said << "mass " << worst.mass << ", mean " << worst.near_mean << ", rest " << worst.rest
       << ", dist " << worst.dist << ", entropy " << worst.entropy << ", distance "
       << worst.distance << ", total " << worst.total << ", top " << worst.top << ", key sums "
       << worst.sums;
  testing::Test::RecordProperty("shares_of_bounds", said.str());
}

constexpr std::int64_t kAllHeads[] = {0, 1, 2, 3};

TEST_P(AttentionStatisticsTest, NearColumnsAreWithinTauOfFloat64) {
  for (const std::int64_t window : {0, 20, 200}) {
    const auto pass = random_pass({{0, 1}, {1, 512}, {513, 90}}, window);
    SCOPED_TRACE(window);
    expect_within(compare_rows(pass, request_of_rows(pass, false), kAllHeads));
  }
}

TEST_P(AttentionStatisticsTest, AllColumnsAreWithinTheDocumentedBoundsOfFloat64) {
  for (const std::int64_t window : {0, 50}) {
    const auto pass = random_pass({{0, 40}, {40, 512}}, window);
    SCOPED_TRACE(window);
    const auto r = request_of_rows(pass, true);
    std::vector<double> keys(as_index(552 * kHeads));
    expect_within(compare_rows(pass, r, kAllHeads, 1, &keys));
    const auto found = pass.statistics(r);
    for (std::size_t i = 0; i < keys.size(); ++i)
      ASSERT_NEAR(std::ldexp(static_cast<double>(found.key_sums[i]), -40), keys[i],
                  2e-5 * keys[i] + 1e-9);
  }
}

// Documented lengths, one head, default window of near keys.
// One bucket per row: each all-keys sum is the weight of the row times its value.
TEST_P(AttentionStatisticsTest, SampledQueriesHaveWeightedSumsAndSquares) {
  const auto pass = random_pass({{0, 40}, {40, 700}}, 0);
  auto request = request_of_rows(pass, true);
  const auto all = pass.statistics(request);
  const std::vector<std::int64_t> documents = {11, 12};
  request.sample = {0.5, 1};
  request.layer = 3;
  request.documents = documents;
  const auto found = pass.statistics(request);
  EXPECT_TRUE(found.key_sums.empty());
  for (std::int64_t d = 0; d < 2; ++d)
    for (const auto head : kAllHeads) {
      const auto length = pass.sequences[as_index(d)].length;
      const auto weights =
          request.sample.horvitz_thompson_weights(length, documents[as_index(d)], 3, head);
      for (std::int64_t i = 0; i < length; ++i)
        for (std::int64_t c = 0; c < found.columns; ++c) {
          const auto at =
              as_index(((d * found.heads + head) * request.buckets + i) * found.columns + c);
          const double weight =
              request.layout.is_all_keys_column(c) ? weights[as_index(i / kSampledQueries)] : 1;
          ASSERT_DOUBLE_EQ(found.sum[at], weight * all.sum[at]) << i << ' ' << c;
          ASSERT_DOUBLE_EQ(found.square[at], weight * all.square[at]) << i << ' ' << c;
        }
    }
}

TEST_P(AttentionStatisticsTest, LongDocumentsAreWithinTheDocumentedBounds) {
  constexpr std::int64_t kOne[] = {1};
  for (const std::int64_t length : {1024, 4096}) {
    const auto pass = random_pass({{0, length}}, 0);
    SCOPED_TRACE(length);
    expect_within(compare_rows(pass, request_of_rows(pass, true, 256), kOne));
    const auto once = pass.statistics(request(true));
    for (int run = 0; run < 2; ++run)
      EXPECT_EQ(pass.statistics(request(true)).key_sums, once.key_sums);
  }
}

// The documented bounds grow with the scores.
TEST_P(AttentionStatisticsTest, LargeScoresAreWithinTheDocumentedBounds) {
  const auto pass = random_pass({{0, 512}}, 0, 20.0f);
  expect_within(compare_rows(pass, request_of_rows(pass, true), kAllHeads));
}

TEST_P(AttentionStatisticsTest, SoftCappedScoresAreWithinTheDocumentedBounds) {
  auto pass = random_pass({{0, 512}}, 0, 12.0f);
  pass.softcap = 5.0f;
  pass.attend();
  expect_within(compare_rows(pass, request_of_rows(pass, true), kAllHeads));
}

// Takes a minute; run before a release (docs/reference/statistics.md).
TEST_P(AttentionStatisticsTest, DISABLED_AThousandRowsOf131072Tokens) {
  constexpr std::int64_t kLength = 131072;
  constexpr std::int64_t kOne[] = {0};
  Pass pass{random_tensor({kLength, 1, kDim}, 1, 1.5f),
            random_tensor({kLength, 1, kDim}, 2),
            random_tensor({kLength, 1, kDim}, 3),
            {{0, kLength}},
            {}};
  std::mt19937 random(4);
  for (std::int64_t i = 0; i < kLength; ++i)
    pass.ids.push_back(static_cast<std::int32_t>(random() % 4000));
  pass.attend();
  const auto r = request_of_rows(pass, true, 256);
  expect_within(compare_rows(pass, r, kOne, 131));
}

// A document of one token attends to itself with weight exactly 1 if the score has the bits of
// compute_attention().
TEST_P(AttentionStatisticsTest, ScoresHaveTheBitsOfAttention) {
  std::vector<Sequence> sequences;
  for (std::int64_t i = 0; i < 200; ++i) sequences.push_back({i, 1});
  const auto pass = random_pass(std::move(sequences), 0);
  const auto r = request(true);
  const auto found = pass.statistics(r);
  for (std::int64_t cell = 0; cell < 200 * kHeads; ++cell) {
    const double* sum = found.sum.data() + cell * r.layout.columns();
    EXPECT_EQ(sum[AttentionColumnLayout::offset(NearKeyColumn::self)], 1.0);
    EXPECT_EQ(sum[AttentionColumnLayout::offset(NearKeyColumn::sink_0)], 1.0);
    EXPECT_EQ(sum[r.layout.distance_band_column(0)], 1.0);
    EXPECT_EQ(sum[r.layout.entropy_column()], 0.0);
  }
}

// Zero queries attend equally to all keys: entropy is ln(i + 1), mean distance i / 2.
TEST_P(AttentionStatisticsTest, EqualScoresGiveUniformEntropyAndDistance) {
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
    EXPECT_NEAR(sum[r.layout.entropy_column()], std::log(static_cast<double>(i + 1)), 1e-5);
    EXPECT_NEAR(sum[r.layout.distance_mean_column()], static_cast<double>(i) / 2,
                2e-5 * static_cast<double>(1 + i));
    for (std::int64_t j = 0; j <= i; ++j) harmonic[as_index(j)] += 1.0 / static_cast<double>(i + 1);
  }
  for (std::int64_t j = 0; j < 200; ++j)
    EXPECT_NEAR(std::ldexp(static_cast<double>(found.key_sums[as_index(j * kHeads)]), -40),
                harmonic[as_index(j)], 2e-5 * harmonic[as_index(j)] + 1e-9);
}

TEST_P(AttentionStatisticsTest, OtherDocumentsOfTheBatchChangeNoBit) {
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

// Compares with float64 sums over the same replaced keys.
TEST_P(AttentionStatisticsTest, KlDivergenceOfReplacedKeysMatchesFloat64) {
  const auto pass = random_pass({{0, 512}}, 0);
  auto r = request_of_rows(pass, true);
  const std::vector<KeyReplacement> replacements = {
      {.scheme = KeyReplacement::Scheme::fp8, .scale = KeyReplacement::Scale::head, .name = "fp8"},
      {.scheme = KeyReplacement::Scheme::int4,
       .scale = KeyReplacement::Scale::group,
       .group = 8,
       .name = "int4_group_8"},
      {.scheme = KeyReplacement::Scheme::fp8,
       .scale = KeyReplacement::Scale::exported,
       .name = "fp8_exported"}};
  // The second scale saturates large keys.
  const std::vector<float> scales = {4.0f / 448.0f, 1.5f / 448.0f};
  r.key_scales = scales;
  r.replacements = replacements;
  r.layout.replacements = 3;
  const auto found = pass.statistics(r);
  for (std::int64_t head = 0; head < kHeads; ++head)
    for (std::size_t which = 0; which < 3; ++which) {
      const auto key_head = head / (kHeads / kKeyHeads);
      const gemm::StridedVectors rows{pass.k.data<float>() + key_head * kDim, kKeyHeads * kDim, 512,
                                      kDim};
      const auto replaced =
          fake_quantize_keys(rows, replacements[which], scales[as_index(key_head)]);
      auto other = random_pass({{0, 512}}, 0);
      for (std::int64_t j = 0; j < 512; ++j)
        std::copy_n(replaced.data() + j * kDim, kDim,
                    other.k.data<float>() + (j * kKeyHeads + key_head) * kDim);
      double mean = 0;
      double found_mean = 0;
      for (std::int64_t i = 0; i < 512; ++i) {
        const auto row = plain_row(pass, {0, 512}, head, i);
        const auto changed = plain_row(other, {0, 512}, head, i);
        double kl = 0;
        for (std::int64_t j = 0; j <= i; ++j)
          kl += row.p[as_index(j)] *
                (row.s[as_index(j)] - row.lse - changed.s[as_index(j)] + changed.lse);
        const double value =
            found.sum[as_index((head * 512 + i) * r.layout.columns() +
                               r.layout.kl_replaced_keys_column(static_cast<std::int64_t>(which)))];
        ASSERT_NEAR(value, kl, 1e-5 + 1e-6 * row.size);
        ASSERT_GE(value, -1e-6);
        mean += kl;
        found_mean += value;
      }
      EXPECT_NEAR(found_mean, mean, 1e-4 * mean);
    }
}

// Keys that E4M3 represents exactly have zero divergence.
TEST_P(AttentionStatisticsTest, ExactlyRepresentableKeysHaveZeroDivergence) {
  auto pass = random_pass({{0, 300}}, 0);
  for (std::int64_t i = 0; i < pass.k.size(); ++i) {
    float& key = pass.k.data<float>()[i];
    key = std::nearbyint(4.0f * std::clamp(key, -3.5f, 3.5f)) / 4.0f;  // 3 bits behind the first
  }
  pass.attend();
  auto r = request_of_rows(pass, true);
  const std::vector<KeyReplacement> same = {{.scheme = KeyReplacement::Scheme::fp8,
                                             .scale = KeyReplacement::Scale::exported,
                                             .name = "fp8_exported"}};
  const std::vector<float> scales = {1.0f, 1.0f};
  r.replacements = same;
  r.key_scales = scales;
  r.layout.replacements = 1;
  const auto found = pass.statistics(r);
  for (std::int64_t row = 0; row < kHeads * 300; ++row)
    EXPECT_NEAR(found.sum[as_index(row * r.layout.columns() + r.layout.kl_replaced_keys_column(0))],
                0.0, 1e-6);
}

TEST_P(AttentionStatisticsTest, KeptMassIsTheSumOverKeptKeys) {
  const auto pass = random_pass({{0, 120}}, 0);
  auto r = request(true);
  const std::vector<KeptKeys> kept = {
      {.rule = KeptKeys::Rule::ends, .first = 4, .last = 16, .name = "first_4_last_16"},
      {.rule = KeptKeys::Rule::short_keys, .share = 0.5, .name = "short_50"},
      {.rule = KeptKeys::Rule::filtered_keys, .share = 0.25, .name = "qfilter_25"}};
  r.kept = kept;
  r.layout.kept_sets = 3;
  const auto filters = random_tensor({kKeyHeads, kDim}, 9);
  r.key_filters = {filters.data<float>(), as_index(filters.size())};
  r.bucket_size = 1;
  r.buckets = 120;
  const auto found = pass.statistics(r);
  const auto shortest =
      kept_key_mask({pass.k.data<float>(), kKeyHeads * kDim, 120, kDim}, nullptr, 0.5);
  EXPECT_EQ(std::count(shortest.begin(), shortest.end(), 1), 60);
  // kvpress keeps the keys with the largest -(filter . key).
  std::vector<std::pair<double, std::int64_t>> scores;
  for (std::int64_t j = 0; j < 120; ++j) {
    const float* key = pass.k.data<float>() + j * kKeyHeads * kDim;
    scores.emplace_back(std::inner_product(key, key + kDim, filters.data<float>(), 0.0), j);
  }
  std::sort(scores.begin(), scores.end());
  for (std::int64_t i = 0; i < 120; ++i) {
    const auto row = plain_row(pass, {0, 120}, 0, i);
    double ends = 0;
    double few = 0;
    for (std::int64_t j = 0; j <= i; ++j) {
      if (j < 4 || i - j < 16) ends += row.p[as_index(j)];
      if (shortest[as_index(j)] != 0) few += row.p[as_index(j)];
    }
    double best = 0;
    for (std::size_t k = 0; k < 30; ++k)
      if (scores[k].second <= i) best += row.p[as_index(scores[k].second)];
    const double* sum = found.sum.data() + i * r.layout.columns();
    EXPECT_NEAR(sum[r.layout.kept_key_mass_column(0)], ends, 1e-5);
    EXPECT_NEAR(sum[r.layout.kept_key_mass_column(1)], few, 1e-5);
    EXPECT_NEAR(sum[r.layout.kept_key_mass_column(2)], best, 1e-5);
    EXPECT_NEAR(sum[r.layout.kl_evicted_column(0)], -std::log(ends), 1e-5 / ends);
  }
}

TEST_P(AttentionStatisticsTest, StatisticsChangeNoBitOfAttention) {
  const auto pass = random_pass({{0, 300}}, 0);
  Tensor z(pass.q.shape());
  compute_attention(pass.input(), z);
  EXPECT_TRUE(std::equal(z.data<float>(), z.data<float>() + z.size(), pass.z.data<float>()));
}

QKSCOPE_EACH_CPU_TARGET(AttentionStatisticsTest);

// Planted heads over 64 tokens that occur twice: an induction head and a previous-token head.
TEST(AttentionStatistics, PlantedInductionAndPreviousTokenHeadsScoreHigh) {
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
  const auto mean = [&](std::int64_t head, NearKeyColumn column) {  // over the second half
    return found.sum[as_index((head * 2 + 1) * r.layout.columns() +
                              AttentionColumnLayout::offset(column))] /
           kCopies;
  };
  EXPECT_GT(mean(0, NearKeyColumn::ind), 0.99);
  EXPECT_LT(mean(0, NearKeyColumn::dup), 0.01);
  // The last token before the copies attends to the first copy, which precedes itself.
  EXPECT_LT(mean(0, NearKeyColumn::prev), 0.01);
  EXPECT_GT(mean(1, NearKeyColumn::prev), 0.99);
  EXPECT_LT(mean(1, NearKeyColumn::ind), 0.01);
  EXPECT_LT(mean(1, NearKeyColumn::dup), 0.01);
}

}  // namespace
}  // namespace qkscope
