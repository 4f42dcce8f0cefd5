// Every estimator gives back what was planted, within its error; the errors are honest.
#include <cmath>

#include <gtest/gtest.h>

#include "analysis/methods/pca.h"
#include "analysis/methods/plasticity.h"
#include "analysis/methods/rotation.h"
#include "planted_rows.h"

namespace qkscope {
namespace {

constexpr int kSeeds = kSanitized ? 30 : 200;

struct Estimates {
  double sum = 0;
  double squares = 0;

  void add(double value) {
    sum += value;
    squares += value * value;
  }
  double mean() const { return sum / kSeeds; }
  double error() const {  // of the mean
    return std::sqrt((squares - sum * sum / kSeeds) / (kSeeds - 1) / kSeeds);
  }
};

// The mean over seeds is the planted value within four standard errors plus `bias`, which states
// what the estimator itself adds (chosen directions fit a little noise).
void expect_planted(const Estimates& estimates, double planted, double bias, const char* what) {
  EXPECT_NEAR(estimates.mean(), planted, 4 * estimates.error() + bias) << what;
}

TEST(Planted, DriftAndSeparationComeBack) {
  Estimates alpha_q, alpha_k, mu_q, mu_k, apart, along_a, bias, content;
  const auto base = small_head(11);
  const Matrix basis = generate_planted_basis(base);
  for (int seed = 0; seed < kSeeds; ++seed) {
    const auto head = plant(base, static_cast<std::uint64_t>(seed));
    const auto found = analyze_planar_rotation(head.queries, head.keys, head.pooled, {});
    alpha_q.add(found.alpha_q);
    alpha_k.add(found.alpha_k);
    mu_q.add(found.mu_q_a);
    mu_k.add(found.mu_k_a);
    apart.add(found.mu_q_b - found.mu_k_b);
    bias.add(found.bias_strength);
    content.add(found.content_var_b);
    along_a.add(dot(found.a, std::span<const double>(basis.row(0), 8)));
  }
  // Positions average to the middle of the context, where the planted means hold. a is estimated:
  // its angle to the planted direction is about sqrt(dim / rows) / (drift * spread of t) = 0.25.
  expect_planted(alpha_q, base.drift_q, 0.02 * base.drift_q, "alpha_q");
  expect_planted(alpha_k, base.drift_k, 0.02 * base.drift_k, "alpha_k");
  expect_planted(mu_q, base.mean_q_a, 0.02, "mu_q_a");
  expect_planted(mu_k, base.mean_k_a, 0.02, "mu_k_a");
  expect_planted(apart, base.separation, 0.05, "separation along b");
  expect_planted(bias, base.mean_q_a * base.drift_k, 0.05 * base.mean_q_a * base.drift_k, "bias");
  expect_planted(content, 1, 0.03, "content_var_b");
  EXPECT_GT(along_a.mean(), 0.95);
}

TEST(Planted, CorrelationsFollowFromDriftAndNoise) {
  auto options = small_head(12);
  options.separation = 0;
  options.mean_q_a = options.mean_k_a = 0;
  options.drift_q = options.drift_k = 6e-3;  // the drift is the first component then
  Estimates r_q, r_k;
  for (int seed = 0; seed < kSeeds; ++seed) {
    const auto head = plant(options, static_cast<std::uint64_t>(seed));
    const auto pca = combined_pca(head.queries, head.keys, head.pooled, {});
    r_q.add(pca.components[0].q.r);
    r_k.add(pca.components[0].k.r);
  }
  // Positions are uniform over the context: standard deviation context / sqrt(12).
  const double signal = 6e-3 * 1024 / std::sqrt(12.0);
  const double r = signal / std::sqrt(signal * signal + 1);
  expect_planted(r_q, r, 0.01, "r_q");
  expect_planted(r_k, r, 0.01, "r_k");
}

TEST(Planted, RotatingPlanesComeBackWithTheirFrequencies) {
  auto options = small_head(13);
  options.planes = {{0.5, 6}, {0.05, 5}};
  options.drift_q = options.drift_k = 2e-2;  // else a tilts into the planes
  // Planted planes turn from one row of the basis to the next; the sign of omega says whether that
  // is how RoPE turns dimension i to i + 4: 1 where it is, -1 against it.
  const auto turning = [&](std::int64_t plane) {
    const Matrix basis = generate_planted_basis(options);
    const double* const x = basis.row(2 + 2 * plane);
    const double* const y = basis.row(3 + 2 * plane);
    double area = 0;
    for (int i = 0; i < 4; ++i) area += x[i] * y[i + 4] - x[i + 4] * y[i];
    return area;
  };
  // A basis in which noise does not decide it, and the two are of different signs.
  while (!(turning(0) > 0.3 && turning(1) < -0.3)) ++options.seed;
  const auto sign = [&](std::int64_t plane) { return turning(plane) > 0 ? 1 : -1; };
  int found_both = 0;
  for (int seed = 0; seed < kSeeds; ++seed) {
    const auto head = plant(options, static_cast<std::uint64_t>(seed));
    RotationOptions rotation;
    rotation.inv_freq = {1, 0.5, 0.05, 0.01};
    const auto found = analyze_planar_rotation(head.queries, head.keys, head.pooled, rotation);
    ASSERT_GE(found.complement.size(), 3u);
    const auto& first = found.complement[0];
    const auto& second = found.complement[1];
    // A frequency is known to about 1 / (length * sqrt(rows)); four of those.
    const double error = 4.0 / 1024 / std::sqrt(600.0);
    const bool both =
        first.active && second.active && std::fabs(first.omega - sign(0) * 0.5) < error &&
        std::fabs(second.omega - sign(1) * 0.05) < error && first.nearest_inv_freq == 0.5 &&
        second.nearest_inv_freq == 0.05 && !found.complement[2].active;
    found_both += both ? 1 : 0;
  }
  EXPECT_GE(found_both, kSeeds * 97 / 100);
}

TEST(Planted, PlasticityIsThatOfTheTrueDistribution) {
  // One drifting coordinate only: queries N(mean + drift (t - middle), 1), keys alike, so that for
  // a pair the preference is Phi(mean of q along delta / |delta|).
  auto options = small_head(14);
  options.examples = kSanitized ? 60 : 200;
  int inside = 0;
  int cells = 0;
  auto large = options;
  large.examples = kSanitized ? 400 : 3000;
  const auto truth_head = plant(large, 999);
  PlasticityOptions linear;
  linear.profile_model = PlasticityOptions::QueryModelKind::linear;
  linear.profile_bins = PlasticityOptions::kBuckets;  // the same whatever the number of texts
  const auto truth = attention_plasticity(truth_head.queries, truth_head.keys, linear);
  const int seeds = kSanitized ? 10 : kSeeds;
  for (int seed = 0; seed < seeds; ++seed) {
    const auto head = plant(options, static_cast<std::uint64_t>(seed));
    const auto found = attention_plasticity(head.queries, head.keys, linear);
    ASSERT_EQ(found.profile.size(), truth.profile.size());
    for (std::size_t i = 2; i < found.profile.size(); ++i) {
      const auto& cell = found.profile[i].mean;
      // Two standard errors over key pairs; the query model is estimated from the same few rows and
      // adds an error of its own, about 1 / sqrt(queries) in z.
      const double error = std::hypot(cell.stderr_ap, truth.profile[i].mean.stderr_ap, 0.01);
      ++cells;
      inside += std::fabs(cell.ap - truth.profile[i].mean.ap) < 2 * error ? 1 : 0;
    }
  }
  EXPECT_GT(inside, cells * 90 / 100);
}

// The standard error over examples, where nothing but the keys is random: coverage close to 95 %.
TEST(Planted, StandardErrorsCoverTheTruth) {
  auto options = small_head(15);
  const auto queries = generate_planted_rows(options, HeadKind::query, 1);
  auto large = options;
  large.examples = kSanitized ? 800 : 6000;
  const PlantedHead truth_head(queries, generate_planted_rows(large, HeadKind::key, 12345));
  const auto truth = attention_plasticity(truth_head.queries, truth_head.keys, {});
  int inside = 0;
  int cells = 0;
  for (int seed = 0; seed < kSeeds; ++seed) {
    const PlantedHead head(queries, generate_planted_rows(options, HeadKind::key,
                                                          static_cast<std::uint64_t>(seed) + 7));
    const auto found = attention_plasticity(head.queries, head.keys, {});
    for (std::size_t i = 4; i < found.profile.size(); ++i) {
      const auto& cell = found.profile[i].mean;
      const double error = std::hypot(cell.stderr_ap, truth.profile[i].mean.stderr_ap);
      ++cells;
      inside += std::fabs(cell.ap - truth.profile[i].mean.ap) < 1.96 * error ? 1 : 0;
    }
  }
  const double coverage = static_cast<double>(inside) / cells;
  RecordProperty("coverage", std::to_string(coverage));
  EXPECT_GT(coverage, 0.90);
  EXPECT_LT(coverage, 0.985);
}

}  // namespace
}  // namespace qkscope
