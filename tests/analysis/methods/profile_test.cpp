// The bins of the plasticity profile, what they hold, and their means.
#include <array>
#include <cmath>

#include <gtest/gtest.h>

#include "analysis/methods/kernels/query_model.h"
#include "analysis/methods/moments.h"
#include "analysis/methods/plasticity.h"
#include "base/core/error.h"
#include "base/io/json.h"
#include "paths.h"
#include "planted_rows.h"

namespace qkscope {
namespace {

constexpr int kBuckets = PlasticityOptions::kBuckets;

PlasticityOptions with_bins(int bins) {
  PlasticityOptions options;
  options.profile_bins = bins;
  return options;
}

PlasticityGrid grid_of(const PlantedHead& head, std::int64_t used,
                       const PlasticityOptions& options) {
  const RowsView queries = as_rows_view(head.query_rows);
  const RowsView keys = as_rows_view(head.key_rows);
  return choose_plasticity_grid(queries, keys, BucketRanges(queries, keys), used, options);
}

// The same head with buckets that double: [0, 127), [127, 255), [255, 511), [511, 1023) and the
// last position.
PlantedHead doubling_buckets(const PlantedHead& head) {
  auto queries = head.query_rows;
  auto keys = head.key_rows;
  for (auto* rows : {&queries, &keys})
    for (std::size_t i = 0; i < rows->position.size(); ++i)
      rows->bucket[i] =
          std::max(6, static_cast<int>(std::log2(static_cast<double>(rows->position[i]) + 1)));
  return {queries, keys};
}

TEST(PlasticityGrid, HasAboutFiftyQueriesInABinAndWholeBinsInABucket) {
  const auto head = plant(small_head(1), 1);  // eight buckets of 128 tokens
  EXPECT_EQ(grid_of(head, 320, {}).context, 1024);
  EXPECT_EQ(grid_of(head, 3, {}).bins, 8);
  EXPECT_EQ(grid_of(head, 320, {}).bins, 8);
  EXPECT_EQ(grid_of(head, 8000, {}).bins, 160);
  EXPECT_EQ(grid_of(head, 8300, {}).bins, 168);
  EXPECT_EQ(grid_of(head, 10'000'000, {}).bins, 1024);
  EXPECT_EQ(grid_of(head, 8000, with_bins(7)).bins, 7);
  EXPECT_EQ(grid_of(head, 8000, with_bins(kBuckets)).bins, 0);
  EXPECT_EQ(grid_of(head, 8000, with_bins(5000)).bins, 1024);  // one per token
}

TEST(PlasticityGrid, EndsBehindTheLastRowWhereBucketsDouble) {
  const auto head = doubling_buckets(plant(small_head(1), 1));
  std::int32_t last = 0;
  for (const auto* rows : {&head.query_rows, &head.key_rows})
    for (const auto t : rows->position) last = std::max(last, t);
  EXPECT_EQ(grid_of(head, 320, {}).context, last + 1);
  EXPECT_EQ(grid_of(head, 3, {}).bins, 4);  // no query is at the last position
  EXPECT_EQ(grid_of(head, 8000, {}).bins, 160);
}

TEST(PlasticityGrid, RefusesOptionsThatCannotBeMeant) {
  for (const int bins : {-2, PlasticityOptions::kMostBins + 1})
    EXPECT_THROW(check_plasticity_bins(with_bins(bins)), Error);
  for (const auto& edges :
       std::vector<std::vector<std::int64_t>>{{5}, {-1, 5}, {0, 10, 10}, {0, 10, 5}}) {
    PlasticityOptions options;
    options.length_bins = edges;
    EXPECT_THROW(check_plasticity_bins(options), Error);
  }
}

HeadRows golden_rows(const Json& golden, const char* side) {
  HeadRows rows;
  rows.head_dim = golden["dim"];
  rows.position = golden[side]["position"].get<std::vector<std::int32_t>>();
  rows.example_id = golden[side]["example"].get<std::vector<std::int32_t>>();
  rows.vectors = golden[side]["vectors"].get<std::vector<float>>();
  for (const auto t : rows.position) rows.bucket.push_back(t / golden["bucket"].get<int>());
  return rows;
}

// tools/make_profile_golden.py loops over bins, texts and pairs. 1e-11: only the order of additions
// differs, and the residual variance of a window cancels up to three digits.
TEST(Profile, IsThatOfAPlainLoop) {
  const Json golden = load_json(source_path("tests/analysis/methods/profile_golden.json"));
  const PlantedHead head(golden_rows(golden, "q"), golden_rows(golden, "k"));
  for (const auto& expected : golden["cases"]) {
    auto options = with_bins(expected["bins"]);
    options.context = golden["context"];
    using Kind = PlasticityOptions::QueryModelKind;
    for (const auto kind : {Kind::local, Kind::bin, Kind::bucket, Kind::linear})
      if (expected["model"] == to_string(kind)) options.profile_model = kind;
    if (expected.value("covariance", "diagonal") == "full")
      options.covariance = PlasticityOptions::Covariance::full;
    options.free_keys = PlasticityOptions::kAllKeys;
    if (!expected["window"].is_null()) options.sliding_window = expected["window"];
    const auto found = attention_plasticity(head.queries, head.keys, options);
    ASSERT_EQ(found.profile.size(), expected["profile"].size());
    for (std::size_t i = 0; i < found.profile.size(); ++i) {
      const auto& point = found.profile[i];
      const Json& known = expected["profile"][i];
      EXPECT_EQ(point.bin, known["bin"]);
      EXPECT_EQ(point.queries, known["queries"]);
      EXPECT_EQ(point.mean.pairs, known["pairs"]);
      if (known["ap"].is_null())
        EXPECT_TRUE(std::isnan(point.mean.ap));
      else
        EXPECT_NEAR(point.mean.ap, known["ap"], 1e-6);  // pairs are compared in float32
      if (known["ap_free"].is_null())
        EXPECT_TRUE(std::isnan(point.ap_free));
      else
        EXPECT_NEAR(point.ap_free, known["ap_free"], 1e-11);
    }
  }
}

TEST(Profile, OfAsManyBinsAsBucketsIsThatOfTheBuckets) {
  const auto head = plant(small_head(2), 2);
  for (const auto kind :
       {PlasticityOptions::QueryModelKind::bucket, PlasticityOptions::QueryModelKind::linear}) {
    auto options = with_bins(8);
    options.profile_model = kind;
    const auto bins = attention_plasticity(head.queries, head.keys, options);
    options.profile_bins = kBuckets;
    const auto buckets = attention_plasticity(head.queries, head.keys, options);
    ASSERT_EQ(bins.profile.size(), buckets.profile.size());
    for (std::size_t i = 0; i < bins.profile.size(); ++i) {
      const auto& bin = bins.profile[i];
      const auto& bucket = buckets.profile[i];
      EXPECT_EQ(bin.low, bucket.low);
      EXPECT_EQ(bin.high, bucket.high);
      EXPECT_EQ(bin.queries, bucket.queries);
      EXPECT_EQ(bin.mean.pairs, bucket.mean.pairs);
      if (bin.mean.pairs > 0) {
        EXPECT_EQ(bin.mean.ap, bucket.mean.ap);
      }
    }
    EXPECT_EQ(bins.ap_profile_overall, buckets.ap_profile_overall);
  }
}

TEST(Profile, HasValuesInsideTheFirstBucket) {
  auto options = small_head(3);
  options.rows_per_bucket = 6;
  const auto head = plant(options, 3);
  const auto result = attention_plasticity(head.queries, head.keys, with_bins(64));
  int inside = 0;
  for (const auto& point : result.profile)
    if (point.high <= options.bucket_size && point.mean.pairs > 0) ++inside;
  EXPECT_GE(inside, 5);  // of eight bins
}

TEST(Profile, CountsOnlyKeysBeforeTheBin) {
  const auto head = plant(small_head(4), 4);
  const auto result = attention_plasticity(head.queries, head.keys, with_bins(50));
  for (const auto& point : result.profile) {
    std::int64_t pairs = 0;
    for (int example = 0; example < 40; ++example) {
      std::int64_t keys = 0;
      for (std::size_t i = 0; i < head.key_rows.position.size(); ++i)
        keys += head.key_rows.example_id[i] == example && head.key_rows.position[i] < point.low;
      pairs += keys * (keys - 1) / 2;
    }
    EXPECT_EQ(point.mean.pairs, pairs) << point.bin;
  }
}

// Rows beyond the context, as another head of the capture may have them.
TEST(Profile, GoesOnBeyondTheContext) {
  const auto head = plant(small_head(5), 5);
  auto options = with_bins(8);
  const auto whole = attention_plasticity(head.queries, head.keys, options);
  options.profile_bins = 4;
  options.context = 512;
  const auto longer = attention_plasticity(head.queries, head.keys, options);
  ASSERT_EQ(longer.profile.size(), whole.profile.size());
  for (std::size_t i = 1; i < whole.profile.size(); ++i)
    EXPECT_EQ(longer.profile[i].mean.ap, whole.profile[i].mean.ap);
}

TEST(Profile, DoesNotMindBucketsThatContradictPositions) {
  auto head = plant(small_head(6), 6);
  for (std::size_t i = 0; i < head.key_rows.bucket.size(); ++i)
    head.key_rows.bucket[i] = static_cast<std::int32_t>(i * 7 % 5);
  const PlantedHead mixed(head.query_rows, head.key_rows);
  auto options = with_bins(32);
  const auto expected = [&] {
    auto sane = plant(small_head(6), 6);
    return attention_plasticity(sane.queries, sane.keys, options);
  }();
  const auto found = attention_plasticity(mixed.queries, mixed.keys, options);
  ASSERT_EQ(found.profile.size(), expected.profile.size());
  for (std::size_t i = 0; i < found.profile.size(); ++i)
    EXPECT_EQ(found.profile[i].mean.pairs, expected.profile[i].mean.pairs);
  options.profile_bins = kBuckets;
  options.sliding_window = 100;
  for (const auto& point : attention_plasticity(mixed.queries, mixed.keys, options).profile)
    if (point.mean.pairs > 0) {
      EXPECT_LE(point.mean.ap, 1);
    }
}

TEST(Profile, IsSampledInBinsThatHoldTooManyPairs) {
  auto planted = small_head(7);
  planted.rows_per_bucket = 4;
  const auto head = plant(planted, 7);
  const auto exact = attention_plasticity(head.queries, head.keys, with_bins(32));
  auto few = with_bins(32);
  few.max_pairs = 2000;
  const auto sampled = attention_plasticity(head.queries, head.keys, few);
  int cells = 0;
  double eligible = 0;
  for (std::size_t i = 0; i < exact.profile.size(); ++i) {
    const auto& all = exact.profile[i].mean;
    const auto& some = sampled.profile[i].mean;
    EXPECT_EQ(some.eligible, all.pairs);
    eligible += static_cast<double>(all.pairs);
    if (all.pairs <= 2000) {
      if (all.pairs > 0) {
        EXPECT_EQ(some.ap, all.ap);
      }
      continue;
    }
    ++cells;
    EXPECT_NEAR(static_cast<double>(some.pairs), 2000, 1);
    EXPECT_NEAR(some.ap, all.ap, 5 * some.stderr_ap);
  }
  EXPECT_GT(cells, 10);
  std::int64_t used = 0;
  double stands_for = 0;
  for (const auto& cell : sampled.heatmap) {
    used += cell.pairs;
    stands_for += static_cast<double>(cell.eligible);
  }
  // The drawn pairs stand for all; a sample may have one more or less, and cells are rounded.
  EXPECT_NEAR(stands_for, eligible, 1e-3 * eligible);
  EXPECT_LT(static_cast<double>(used), 0.5 * eligible);
  for (const auto& cell : exact.heatmap) EXPECT_EQ(cell.pairs, cell.eligible);
}

TEST(PlasticityMeans, AreThoseOfTheBinsWhoseCentreIsInside) {
  PlasticityResult result;
  result.profile_context = 100;
  for (int i = 0; i < 10; ++i)
    result.profile.push_back(
        {i, 10.0 * i, 10.0 * (i + 1), 10.0 * i + 4, i == 9 ? 20 : 10, {}, 0, 0, 0, 0});
  for (int i = 0; i < 10; ++i)
    result.profile[static_cast<std::size_t>(i)].mean.ap = i == 0 ? std::nan("") : 0.1 * i;
  PlasticityOptions options;
  options.length_bins = {0, 20, 60};
  auto range = result;
  summarize_plasticity_profile(options, range);
  EXPECT_EQ(range.profile_low, 10);
  EXPECT_EQ(range.profile_high, 100);
  EXPECT_NEAR(range.ap_profile_overall, (0.1 + 0.2 + 0.3 + 0.4 + 0.5 + 0.6 + 0.7 + 0.8 + 1.8) / 10,
              1e-15);
  // Fifths of 18 tokens: [10, 28) holds the centres 15 and 25, [82, 100) holds 85 and 95.
  EXPECT_NEAR(range.ap_first20, 0.15, 1e-15);
  EXPECT_NEAR(range.ap_last20, 0.85, 1e-15);
  EXPECT_NEAR(range.ap_drop, -0.7, 1e-15);
  ASSERT_EQ(range.profile_bin_means.size(), 10u + 5u + 2u);
  const auto& length = range.profile_bin_means[15];
  EXPECT_EQ(to_string(length.kind), "length");
  EXPECT_EQ(length.bins, 1);  // the first bin has no value
  EXPECT_NEAR(length.ap, 0.1, 1e-15);
  EXPECT_NEAR(range.profile_bin_means[16].ap, 0.35, 1e-15);
  options.fifths = PlasticityOptions::Fifths::context;
  auto context = result;
  summarize_plasticity_profile(options, context);
  EXPECT_NEAR(context.ap_first20, 0.1, 1e-15);
  EXPECT_NEAR(context.ap_last20, 0.85, 1e-15);
}

TEST(PlasticityMeans, LengthBinsDoubleOverTheContext) {
  PlasticityResult result;
  result.profile_context = 5000;
  summarize_plasticity_profile({}, result);
  ASSERT_EQ(result.profile_bin_means.size(), 10u + 5u + 4u);
  EXPECT_EQ(result.profile_bin_means.back().low, 4096);
  EXPECT_EQ(result.profile_bin_means.back().high, 8192);
  EXPECT_TRUE(std::isnan(result.ap_first20));
}

TEST(JackknifeGroups, AreNeighboursInTheOrderOfTheirKeys) {
  auto options = small_head(8);
  options.examples = 50;
  const auto head = plant(options, 8);
  const JackknifeGroups groups(as_rows_view(head.query_rows), as_rows_view(head.key_rows));
  ASSERT_EQ(groups.size(), 20);
  for (int text = 0; text < 50; ++text) EXPECT_EQ(groups.group_of(text), text * 20 / 50) << text;
  EXPECT_EQ(groups.group_of(-5), 0);
  EXPECT_EQ(groups.group_of(500), 19);
  options.examples = 3;
  const auto few = plant(options, 8);
  EXPECT_EQ(JackknifeGroups(as_rows_view(few.query_rows), as_rows_view(few.key_rows)).size(), 3);
}

class ProfileReplicatesOf : public testing::TestWithParam<PlasticityOptions::QueryModelKind> {};

// Leaving out a group of two texts of 40 moves the profile as the texts' absence does. The change
// of the queries' model is taken to first order, so values agree to a tenth of the standard error
// and standard errors to a few percent; the keys' part is exact.
TEST_P(ProfileReplicatesOf, AreTheProfileWithoutTheTexts) {
  auto planted = small_head(9);
  planted.rows_per_bucket = 4;
  const auto head = plant(planted, 9);
  auto options = with_bins(16);
  options.context = 1024;
  options.profile_model = GetParam();
  options.replicate_pairs = 1 << 30;  // all
  options.free_keys = PlasticityOptions::kAllKeys;
  const auto result = attention_plasticity(head.queries, head.keys, options);
  const auto points = result.profile.size();
  const auto& without = result.profile_without;
  ASSERT_EQ(without.groups, 20);
  ASSERT_EQ(without.value.size(), 20 * points);
  const JackknifeGroups texts(head.queries.source, head.keys.source);
  std::vector<double> overall;
  std::vector<double> overall_found;
  std::vector<double> free;
  std::vector<double> free_found;
  double squares = 0;
  double errors = 0;
  for (int group = 0; group < 20; ++group) {
    const PlantedHead rest(rows_without(head.query_rows, texts, group),
                           rows_without(head.key_rows, texts, group));
    auto plain = options;
    plain.replicates = false;
    const auto expected = attention_plasticity(rest.queries, rest.keys, plain);
    ASSERT_EQ(expected.profile.size(), points);
    for (std::size_t i = 0; i < points; ++i) {
      const auto at = static_cast<std::size_t>(group) * points + i;
      EXPECT_EQ(without.queries[at], static_cast<double>(expected.profile[i].queries));
      if (std::isnan(expected.profile[i].mean.ap) || std::isnan(without.value[at])) continue;
      squares += std::pow(without.value[at] - expected.profile[i].mean.ap, 2);
      errors += std::pow(result.profile[i].mean.ap - expected.profile[i].mean.ap, 2);
    }
    overall.push_back(expected.ap_profile_overall);
    free.push_back(expected.ap_free_overall);
    overall_found.push_back(
        plasticity_means_without_group(result, PlasticityKind::gaussian, group).overall);
    free_found.push_back(
        plasticity_means_without_group(result, PlasticityKind::free, group).overall);
  }
  EXPECT_LT(squares, 0.05 * errors);
  EXPECT_NEAR(jackknife_error(overall_found) / jackknife_error(overall), 1, 0.1);
  EXPECT_NEAR(jackknife_error(free_found) / jackknife_error(free), 1, 0.1);
}

constexpr std::array kModelNames = {"local", "bin", "bucket", "linear"};
INSTANTIATE_TEST_SUITE_P(Models, ProfileReplicatesOf,
                         testing::Values(PlasticityOptions::QueryModelKind::local,
                                         PlasticityOptions::QueryModelKind::bin,
                                         PlasticityOptions::QueryModelKind::bucket,
                                         PlasticityOptions::QueryModelKind::linear),
                         [](const auto& kind) { return kModelNames[kind.index]; });

TEST(ProfileReplicates, OfASampleOfPairsHaveTheSameErrors) {
  auto planted = small_head(31);
  planted.dim = 32;
  planted.examples = 200;
  planted.rows_per_bucket = 2;
  const auto head = plant(planted, 31);
  auto options = with_bins(24);
  const auto sampled = attention_plasticity(head.queries, head.keys, options);
  options.replicate_pairs = 1 << 30;
  const auto all = attention_plasticity(head.queries, head.keys, options);
  ASSERT_GT(all.profile.back().mean.pairs, 10 * 1024);
  double ratios = 0;
  double values = 0;
  for (std::size_t i = 0; i < all.profile.size(); ++i) {
    if (std::isnan(all.profile[i].se)) continue;
    EXPECT_EQ(sampled.profile[i].mean.ap, all.profile[i].mean.ap);
    EXPECT_NEAR(sampled.profile[i].se, all.profile[i].se, 0.3 * all.profile[i].se) << i;
    ratios += sampled.profile[i].se / all.profile[i].se;
    values += 1;
  }
  EXPECT_NEAR(ratios / values, 1, 0.05);
}

TEST(ProfileReplicates, AreLeftOutWhereNobodyAsks) {
  const auto head = plant(small_head(9), 9);
  auto options = with_bins(24);
  options.replicates = false;
  const auto result = attention_plasticity(head.queries, head.keys, options);
  EXPECT_EQ(result.profile_without.groups, 0);
  EXPECT_TRUE(std::isnan(result.profile.back().se));
  EXPECT_TRUE(std::isnan(result.profile_bin_means.front().se));
}

}  // namespace
}  // namespace qkscope
