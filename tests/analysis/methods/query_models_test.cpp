// The query models of the profile on planted queries whose plasticity is known in closed form.
#include <cmath>

#include <gtest/gtest.h>

#include "analysis/methods/kernels/query_model.h"
#include "analysis/methods/plasticity.h"
#include "analysis/methods/rotation.h"
#include "base/numerics/normal.h"
#include "planted_rows.h"
#include "qkscope/error.h"

namespace qkscope {
namespace {

using Kind = PlasticityOptions::QueryModelKind;

constexpr int kDim = 6;
constexpr int kContext = 1024;
constexpr int kBucket = 128;

// Mean query at a position: a parabola along two coordinates, constant along the others.
std::vector<double> curved_path(double position) {
  const double x = position / kContext;
  return {6 * x * x, -1.5 + 3 * x * x, 0.5, 0, -0.3, 0.2};
}

// Noise of standard deviation `noise` in every coordinate; a share of the queries are outliers by
// `jump` along the third.
struct Noise {
  double noise = 1;
  double jump = 0;
  double share = 0;
};

HeadRows curved_rows(int texts, const Noise* noise, std::uint64_t seed) {
  Random random(seed);
  HeadRows rows;
  rows.head_dim = kDim;
  for (int text = 0; text < texts; ++text)
    for (int row = 0; row < 16; ++row) {
      const auto position =
          static_cast<std::int32_t>(64 * row + static_cast<int>(random.next_below(64)));
      rows.position.push_back(position);
      rows.example_id.push_back(text);
      rows.bucket.push_back(position / kBucket);
      const auto mean = curved_path(position);
      const double outlier = noise != nullptr && random.uniform() < noise->share ? 1 : 0;
      for (int j = 0; j < kDim; ++j)
        rows.vectors.push_back(static_cast<float>(
            noise == nullptr ? random.normal()
                             : mean[static_cast<std::size_t>(j)] + noise->noise * random.normal() +
                                   (j == 2 ? outlier * noise->jump : 0)));
    }
  return rows;
}

// The mean plasticity of a bin over all pairs of keys before it, from the true distribution.
double true_plasticity(const HeadRows& keys, const ProfilePoint& bin, const Noise& noise) {
  const auto mean = curved_path(bin.centre());
  double sum = 0;
  double pairs = 0;
  for (std::size_t i = 0; i < keys.position.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      if (keys.example_id[i] != keys.example_id[j]) continue;
      if (keys.position[i] >= bin.low || keys.position[j] >= bin.low) continue;
      double m = 0;
      double square = 0;
      for (std::size_t d = 0; d < kDim; ++d) {
        const double delta = keys.vectors[i * kDim + d] - keys.vectors[j * kDim + d];
        m += mean[d] * delta;
        square += delta * delta;
      }
      const double jump = noise.jump * (keys.vectors[i * kDim + 2] - keys.vectors[j * kDim + 2]);
      const double spread = noise.noise * std::sqrt(square);
      const double p = noise.share * normal_cdf((m + jump) / spread) +
                       (1 - noise.share) * normal_cdf(m / spread);
      sum += 4 * p * (1 - p);
      pairs += 1;
    }
  return sum / pairs;
}

struct Offsets {
  double gaussian = 0;         // rms of ap - truth
  double free = 0;             // rms of ap_free - truth
  double gaussian_inside = 0;  // share of bins within three standard errors
  double free_inside = 0;
  std::optional<bool> is_gaussian;
};

Offsets offsets_of(Kind kind, const Noise& noise) {
  const int texts = 240;
  const PlantedHead head(curved_rows(texts, &noise, 1), curved_rows(texts, nullptr, 2));
  PlasticityOptions options;
  options.profile_bins = 64;
  options.profile_model = kind;
  const auto found = attention_plasticity(head.queries, head.keys, options);
  Offsets offsets;
  double bins = 0;
  for (const auto& point : found.profile) {
    if (std::isnan(point.se) || std::isnan(point.se_free)) continue;
    const double truth = true_plasticity(head.key_rows, point, noise);
    bins += 1;
    offsets.gaussian += std::pow(point.mean.ap - truth, 2);
    offsets.free += std::pow(point.ap_free - truth, 2);
    offsets.gaussian_inside += std::fabs(point.mean.ap - truth) < 3 * point.se ? 1 : 0;
    offsets.free_inside += std::fabs(point.ap_free - truth) < 3 * point.se_free ? 1 : 0;
  }
  EXPECT_GT(bins, 50);
  offsets.gaussian = std::sqrt(offsets.gaussian / bins);
  offsets.free = std::sqrt(offsets.free / bins);
  offsets.gaussian_inside /= bins;
  offsets.free_inside /= bins;
  offsets.is_gaussian = found.gaussian;
  return offsets;
}

TEST(CurvedPath, IsRecoveredByTheLocalModelAndWithoutAModelButNotByBuckets) {
  const auto local = offsets_of(Kind::local, {1, 0, 0});
  EXPECT_GT(local.gaussian_inside, 0.95);
  EXPECT_GT(local.free_inside, 0.95);
  EXPECT_LT(local.gaussian, 0.02);
  EXPECT_LT(local.free, 0.04);
  EXPECT_EQ(local.is_gaussian, true);
  const auto bucket = offsets_of(Kind::bucket, {1, 0, 0});
  EXPECT_GT(bucket.gaussian, 2 * local.gaussian);
  EXPECT_LT(bucket.gaussian_inside, 0.9);
}

TEST(Outliers, AreRecoveredWithoutAModelAndReportedAsNotGaussian) {
  const auto found = offsets_of(Kind::local, {0.5, 10, 0.1});
  EXPECT_GT(found.free_inside, 0.95);
  EXPECT_LT(found.free, 0.04);
  EXPECT_GT(found.gaussian, 2 * found.free);
  EXPECT_EQ(found.is_gaussian, false);
}

TEST(LocalModel, HasNoStepsAtBucketBorders) {
  const Noise noise;
  const PlantedHead head(curved_rows(240, &noise, 3), curved_rows(240, nullptr, 4));
  const auto border_ratio = [&](Kind kind) {
    PlasticityOptions options;
    options.profile_bins = 64;
    options.profile_model = kind;
    const auto profile = attention_plasticity(head.queries, head.keys, options).profile;
    double at_borders = 0;
    double borders = 0;
    double elsewhere = 0;
    double others = 0;
    for (std::size_t i = 10; i < profile.size(); ++i) {
      const double step = std::fabs(profile[i].mean.ap - profile[i - 1].mean.ap);
      const bool border = std::fmod(profile[i].low, kBucket) == 0;
      (border ? at_borders : elsewhere) += step;
      (border ? borders : others) += 1;
    }
    return at_borders / borders / (elsewhere / others);
  };
  EXPECT_LT(border_ratio(Kind::local), 1.5);
  EXPECT_GT(border_ratio(Kind::bucket), 3);
}

// Comparisons of keys do not depend on the unit of queries and keys; float32 bounds their size.
TEST(QueryModels, DoNotDependOnTheScaleAndRefuseHugeComponents) {
  const auto queries = curved_rows(40, nullptr, 5);
  const auto keys = curved_rows(40, nullptr, 6);
  const auto scaled = [](HeadRows rows, float factor) {
    for (float& x : rows.vectors) x *= factor;
    return rows;
  };
  const PlantedHead plain(queries, keys);
  const PlantedHead tiny(queries, scaled(keys, 0x1p-60F));
  const auto expected = attention_plasticity(plain.queries, plain.keys, {});
  const auto found = attention_plasticity(tiny.queries, tiny.keys, {});
  EXPECT_EQ(found.ap_profile_overall, expected.ap_profile_overall);
  const PlantedHead huge(queries, scaled(keys, 1e18F));
  EXPECT_THROW(attention_plasticity(huge.queries, huge.keys, {}), Error);
}

TEST(FreePlasticity, IsUnbiased) {
  // Over all outcomes of n coin flips with probability p.
  for (const int n : {2, 5, 50})
    for (const double p : {0.1, 0.5}) {
      double mean = 0;
      for (int k = 0; k <= n; ++k)
        mean += std::exp(std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1)) *
                std::pow(p, k) * std::pow(1 - p, n - k) * unbiased_plasticity(k * (n - k), n);
      EXPECT_NEAR(mean, 4 * p * (1 - p), 1e-12);
    }
}

TEST(FreePlasticity, OfASampleOfTextsIsThatOfAllPairsWithinAFewPercent) {
  const Noise noise{0.5, 10, 0.1};
  const PlantedHead head(curved_rows(240, &noise, 5), curved_rows(240, nullptr, 6));
  PlasticityOptions options;
  options.profile_bins = 32;
  const auto sampled = attention_plasticity(head.queries, head.keys, options);
  options.free_keys = PlasticityOptions::kAllKeys;
  const auto all = attention_plasticity(head.queries, head.keys, options);
  double squares = 0;
  double bins = 0;
  for (std::size_t i = 0; i < all.profile.size(); ++i) {
    if (std::isnan(all.profile[i].ap_free)) continue;
    EXPECT_EQ(all.profile[i].free_pairs, all.profile[i].mean.pairs);
    squares += std::pow(sampled.profile[i].ap_free - all.profile[i].ap_free, 2);
    bins += 1;
  }
  EXPECT_LT(std::sqrt(squares / bins), 0.03);
  EXPECT_NEAR(sampled.ap_free_overall, all.ap_free_overall, 0.01);
}

TEST(FreePlasticity, OfEqualKeysIsOne) {
  const Noise noise;
  auto keys = curved_rows(20, nullptr, 8);
  for (std::size_t i = 0; i < keys.vectors.size(); ++i) keys.vectors[i] = 1;
  const PlantedHead head(curved_rows(20, &noise, 7), keys);
  PlasticityOptions options;
  options.profile_bins = 8;
  const auto found = attention_plasticity(head.queries, head.keys, options);
  EXPECT_NEAR(found.ap_free_overall, 1, 1e-12);
  EXPECT_NEAR(found.ap_profile_overall, 1, 1e-12);
}

TEST(EpanechnikovWindow, WidensUntilAHundredRowsAreEffective) {
  std::vector<double> position(1000);
  for (std::size_t i = 0; i < position.size(); ++i) position[i] = static_cast<double>(i);
  const auto wide = epanechnikov_fit_window(position, 500, 200);
  EXPECT_EQ(wide.scale, 200);
  EXPECT_EQ(wide.row.size(), 399u);
  const auto narrow = epanechnikov_fit_window(position, 500, 5);
  EXPECT_GT(narrow.scale, 59);  // n effective = (4/3 h)^2 / (16/15 h) = 5/3 h
  EXPECT_LT(narrow.scale, 67);
  // Fewer rows than that: all of them, nearly equal.
  const auto few = epanechnikov_fit_window(std::span(position).first(50), 25, 5);
  EXPECT_EQ(few.row.size(), 50u);
  EXPECT_GT(few.weight.front(), 0.9);
}

// A single query and a single key: their difference may be the drift itself, which leaves no
// direction that separates them, and no planes.
TEST(Rotation, OfTwoRowsHasNoPlanes) {
  HeadRows query;
  query.head_dim = 4;
  query.position = {3};
  query.example_id = {0};
  query.bucket = {0};
  query.vectors = {1, 2, 3, 4};
  HeadRows key = query;
  key.position = {9};
  key.vectors = {0, 1, 1, 2};
  const PlantedHead head(query, key);
  const auto found = analyze_planar_rotation(head.queries, head.keys, head.pooled, {});
  EXPECT_EQ(found.undefined, "no_separation");
  EXPECT_TRUE(found.complement.empty());
}

}  // namespace
}  // namespace qkscope
