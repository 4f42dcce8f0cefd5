// Errors of means over heads: they cover what they should, and say when they cannot.
#include <cmath>
#include <functional>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analysis/methods/moments.h"
#include "analysis/methods/pca.h"
#include "analysis/methods/planted.h"
#include "analysis/methods/plasticity.h"
#include "analysis/methods/rotation.h"
#include "analysis/results/head_results.h"
#include "base/io/json.h"
#include "base/numerics/random.h"
#include "base/numerics/sample_statistics.h"
#include "qkscope/analysis.h"
#include "qkscope/experimental/threads.h"
#include "sanitized.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

using testing::HasSubstr;

constexpr int kDim = 6;

PlantedOptions head_options(int texts, std::uint64_t seed) {
  PlantedOptions options;
  options.dim = kDim;
  options.examples = texts;
  options.context = 512;
  options.bucket_size = 64;
  options.drift_q = 6e-3;
  options.drift_k = 4e-3;
  options.separation = 5;
  options.seed = seed;
  return options;
}

// Rows of one text share an offset, so that rows say less than their number: an error over rows
// would be too small.
void shift_texts(HeadRows& rows, std::uint64_t seed) {
  constexpr double kSpread = 0.6;
  for (std::size_t i = 0; i < rows.position.size(); ++i) {
    Random random(seed * 1000003 + static_cast<std::uint64_t>(rows.example_id[i]));
    for (int j = 0; j < kDim; ++j)
      rows.vectors[i * kDim + static_cast<std::size_t>(j)] +=
          static_cast<float>(kSpread * random.normal());
  }
}

// Queries and keys of which capture.
struct Drawn {
  int query_texts = 0;
  std::uint64_t query_seed = 0;
  int key_texts = 0;
  std::uint64_t key_seed = 0;
};

// Two heads of one capture, with their replicates.
AnalysisRun run_of(const Drawn& drawn) {
  AnalyzeOptions options;
  options.rotation_options.null_draws = 0;
  AnalysisRun run;
  run.texts = drawn.key_texts;
  for (const std::uint64_t number : {1, 2}) {
    auto q = generate_planted_rows(head_options(drawn.query_texts, number), HeadKind::query,
                                   4 * drawn.query_seed + number);
    auto k = generate_planted_rows(head_options(drawn.key_texts, number), HeadKind::key,
                                   4 * drawn.key_seed + number + 900000007);
    shift_texts(q, 2 * drawn.query_seed + 1);
    shift_texts(k, 2 * drawn.key_seed + 2);
    const JackknifeGroups groups(as_rows_view(q), as_rows_view(k));
    const auto queries = make_grouped_rows(as_rows_view(q), groups);
    const auto keys = make_grouped_rows(as_rows_view(k), groups);
    const auto pooled = pool_moments(queries.rows, keys.rows);
    HeadReport head;
    head.pca = combined_pca(queries.rows, keys.rows, pooled, options.pca_options, &groups);
    head.rotation =
        find_drift_and_separation(queries.rows, keys.rows, pooled, options.rotation_options);
    PlasticityOptions plasticity;
    plasticity.profile_bins = 8;
    plasticity.context = 512;
    plasticity.text_groups = groups.first_text_of_each_group();
    head.plasticity =
        attention_plasticity(queries.rows, keys.rows, key_mean_signs(keys.rows), plasticity);
    head.without_group = jackknife_replicates(head, leave_one_group_out_moments(queries),
                                              leave_one_group_out_moments(keys), options);
    run.heads.push_back(std::move(head));
  }
  run.errors = compute_errors_of_means(run, options);
  return run;
}

// How many of the seeds have an interval that holds the truth.
std::map<std::string, int> coverage(const std::vector<std::string>& quantities, int seeds,
                                    const std::function<AnalysisRun(std::uint64_t)>& run_of_seed,
                                    const AnalysisRun& truth) {
  std::map<std::string, int> covered;
  for (int seed = 0; seed < seeds; ++seed) {
    const auto run = run_of_seed(static_cast<std::uint64_t>(seed));
    for (const auto& quantity : quantities) {
      const auto* error = find_error_of_mean(run, quantity, "all");
      const auto* expected = find_error_of_mean(truth, quantity, "all");
      if (error == nullptr || expected == nullptr) {
        ADD_FAILURE() << quantity << " has no error";
        return covered;
      }
      EXPECT_EQ(error->n_heads, 2);
      EXPECT_EQ(error->texts, 60);
      covered[quantity] += error->low <= expected->mean && expected->mean <= error->high ? 1 : 0;
    }
  }
  return covered;
}

// 285 of 300 are expected; four binomial standard deviations are 15.
void expect_covered(const std::map<std::string, int>& covered, int least) {
  for (const auto& [quantity, count] : covered) {
    testing::Test::RecordProperty(quantity, count);
    if (!kSanitized) {  // there: too few seeds to say
      EXPECT_GE(count, least) << quantity;
    }
  }
}

constexpr int kSeeds = kSanitized ? 10 : 300;
constexpr int kManyTexts = kSanitized ? 1000 : 12000;

TEST(MeanErrors, CoverTheTruthNineteenTimesOfTwenty) {
  const auto covered = coverage(
      {"r_q", "r_k", "pc0_variance", "position_r", "alpha_k", "abs_r_k_a", "abs_r_q_a",
       "bias_strength", "mu_q_a", "content_var_b", "separation_strength", "plane_var_fraction"},
      kSeeds,
      [](std::uint64_t seed) {
        return run_of({60, seed, 60, seed});
      },
      run_of({kManyTexts, 4242, kManyTexts, 4242}));
  expect_covered(covered, 270);
}

// Other texts have other keys and other queries: both are in the intervals of plasticity.
TEST(MeanErrors, OfPlasticityCoverTheTruthNineteenTimesOfTwenty) {
  const auto truth = run_of({kManyTexts, 4242, kManyTexts, 4242});
  const double reach = student_t_critical_value(0.05, 19);
  double bins = 0;
  double covered_bins = 0;
  const auto covered = coverage(
      {"ap_profile_overall", "ap_first20", "ap_last20", "ap_drop"}, kSeeds,
      [&](std::uint64_t seed) {
        auto run = run_of({60, seed, 60, seed});
        for (std::size_t head = 0; head < run.heads.size(); ++head) {
          const auto& profile = run.heads[head].plasticity->profile;
          for (std::size_t i = 0; i < profile.size(); ++i) {
            if (std::isnan(profile[i].se)) continue;
            const double off =
                profile[i].mean.ap - truth.heads[head].plasticity->profile[i].mean.ap;
            bins += 1;
            covered_bins += std::fabs(off) <= reach * profile[i].se ? 1 : 0;
          }
        }
        return run;
      },
      truth);
  expect_covered(covered, 270);
  EXPECT_EQ(bins, kSeeds * 2 * 7);
  RecordProperty("bins", std::to_string(covered_bins / bins));
  if (!kSanitized) {
    EXPECT_NEAR(covered_bins / bins, 0.95, 0.02);
  }
}

// A mean whose value is known: mean over heads of the number, jackknifed by hand.
TEST(MeanErrors, AreThoseOfTheJackknife) {
  AnalysisRun run;
  run.texts = 3;
  const double whole[] = {1, 3};
  const double without[2][3] = {{1.5, 0.5, 1}, {3, 3.5, 2}};
  for (int i = 0; i < 2; ++i) {
    HeadReport head;
    head.rotation.emplace().alpha_k = whole[i];
    for (const double value : without[i]) {
      HeadReport replicate;
      replicate.rotation.emplace().alpha_k = value;
      head.without_group.push_back(replicate);
    }
    run.heads.push_back(head);
  }
  AnalyzeOptions options;
  options.pca = options.plasticity = false;
  run.errors = compute_errors_of_means(run, options);
  const auto* error = find_error_of_mean(run, "alpha_k", "all");
  ASSERT_NE(error, nullptr);
  EXPECT_DOUBLE_EQ(error->mean, 2);
  // Means without a group: 2.25, 2, 1.5.
  const double centre = (2.25 + 2 + 1.5) / 3;
  const double squares =
      std::pow(2.25 - centre, 2) + std::pow(2 - centre, 2) + std::pow(1.5 - centre, 2);
  EXPECT_NEAR(error->se, std::sqrt(squares * 2 / 3), 1e-14);
  // Student's t with two degrees of freedom: p = 1 - sqrt(y), y = t^2 / (2 + t^2).
  const double t = std::sqrt(2 * 0.9025 / 0.0975);
  EXPECT_NEAR(error->high - error->mean, t * error->se, 1e-12);
  // A head that does not exist without some group does not make the mean jump.
  run.heads[1].without_group[1].rotation.reset();
  run.errors = compute_errors_of_means(run, options);
  error = find_error_of_mean(run, "alpha_k", "all");
  EXPECT_DOUBLE_EQ(error->mean, 2);
  EXPECT_NEAR(error->se, std::sqrt((0.25 + 0.25) * 2 / 3), 1e-14);  // 1.5, 0.5, 1
}

class AnalysedCapture : public testing::Test {
 protected:
  AnalysisRun analyse(const PlantedCaptureOptions& planted, AnalyzeOptions options = {}) const {
    auto capture = planted;
    capture.data_root = folder_.file("capture");
    write_planted_capture(capture);
    options.data_root = capture.data_root;
    options.quiet = true;
    return analyze_capture(options);
  }
  static PlantedCaptureOptions small(int texts) {
    PlantedCaptureOptions options;
    options.layers = 2;
    options.query_heads = 4;
    options.key_heads = 2;
    options.nope_every = 2;
    options.active_planes = 1;
    options.head = head_options(texts, 3);
    return options;
  }
  TemporaryFolder folder_;
};

TEST_F(AnalysedCapture, HasErrorsForEveryMeanAndGroupOfHeads) {
  const auto run = analyse(small(30));
  EXPECT_EQ(run.texts, 30);
  for (const char* quantity : {"r_q", "pc0_variance", "mixed", "bias_strength", "abs_alpha_k",
                               "slope_ratio_median", "share_positive_bias"})
    for (const char* heads : {"all", "rope", "nope"}) {
      const auto* error = find_error_of_mean(run, quantity, heads);
      ASSERT_NE(error, nullptr) << quantity << " " << heads;
      EXPECT_GE(error->se, 0) << quantity;
      EXPECT_LE(error->low, error->mean);
      EXPECT_EQ(error->n_heads, std::string(heads) == "all" ? 8 : 4);
    }
  EXPECT_TRUE(run.warnings.empty());
}

TEST_F(AnalysedCapture, OfOneTextHasNoErrors) {
  const auto run = analyse(small(1));
  const auto* error = find_error_of_mean(run, "r_q", "all");
  ASSERT_NE(error, nullptr);
  EXPECT_TRUE(std::isnan(error->se));
  EXPECT_EQ(error->texts, 1);
}

TEST_F(AnalysedCapture, WithoutErrorsHasTheSameNumbers) {
  AnalyzeOptions options;
  options.errors = false;
  const auto without = analyse(small(30), options);
  const auto with = analyse(small(30));
  EXPECT_TRUE(without.errors.empty());
  for (std::size_t i = 0; i < with.heads.size(); ++i) {
    EXPECT_TRUE(without.heads[i].without_group.empty());
    // Groups only change the order of additions.
    EXPECT_NEAR(with.heads[i].rotation->alpha_k, without.heads[i].rotation->alpha_k, 1e-14);
    EXPECT_NEAR(with.heads[i].pca->components[0].q.r, without.heads[i].pca->components[0].q.r,
                1e-12);
  }
}

TEST_F(AnalysedCapture, HasTheSameErrorsAndNullsOnAnyNumberOfThreads) {
  set_thread_count(1);
  const auto one = analyse(small(12));
  set_thread_count(4);
  const auto four = analyse(small(12));
  set_thread_count(0);
  ASSERT_EQ(one.errors.size(), four.errors.size());
  for (std::size_t i = 0; i < one.errors.size(); ++i)
    EXPECT_EQ(one.errors[i].se, four.errors[i].se);
  for (std::size_t i = 0; i < one.heads.size(); ++i) {
    const auto& a = one.heads[i].rotation->null;
    const auto& b = four.heads[i].rotation->null;
    EXPECT_EQ(a.position_r, b.position_r);
    EXPECT_EQ(a.r_k_a_p, b.r_k_a_p);
    EXPECT_NE(a.position_r, one.heads[(i + 1) % one.heads.size()].rotation->null.position_r);
  }
}

TEST_F(AnalysedCapture, SaysWhenRowsAreFew) {
  auto planted = small(2);
  planted.head.dim = 64;
  planted.head.drift_q = planted.head.drift_k = 0;
  planted.head.mean_q_a = planted.head.mean_k_a = 0;
  const auto run = analyse(planted);
  ASSERT_FALSE(run.warnings.empty());
  EXPECT_THAT(run.warnings[0], HasSubstr("in 8 of 8 heads rows are few"));
  EXPECT_THAT(run.warnings[0], HasSubstr("64 dimensions"));
  EXPECT_THAT(run.warnings[0], HasSubstr("by chance, see position_r_null"));
  for (const auto& head : run.heads) {
    EXPECT_TRUE(is_unreliable(head));
    EXPECT_GT(head.rotation->null.position_r, 0.5);
  }
  AnalyzeOptions options;
  options.data_root = folder_.file("capture");
  options.quiet = true;
  write_results(folder_.file("results"), run, options);
  const auto summary = load_json(folder_.file("results") + "/summary.json");
  EXPECT_EQ(summary.at("warnings").size(), run.warnings.size());
}

TEST_F(AnalysedCapture, IsOfTheChosenHeads) {
  AnalyzeOptions options;
  options.layers = {1};
  const auto layer = analyse(small(5), options);
  ASSERT_EQ(layer.heads.size(), 4u);
  EXPECT_EQ(layer.heads[0].query.layer, 1);
  options.heads = {{1, 3, HeadKind::query}, {0, 2, HeadKind::query}};
  EXPECT_EQ(analyse(small(5), options).heads.size(), 1u);
  options.layers = {};
  EXPECT_EQ(analyse(small(5), options).heads.size(), 2u);
  const auto complaint = [&] {
    try {
      analyse(small(5), options);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  options.heads = {{1, 9, HeadKind::query}};
  EXPECT_THAT(complaint(),
              HasSubstr("no query head 9 in layer 1; the capture has heads 0, 1, 2, 3"));
  options.heads = {};
  options.layers = {5};
  EXPECT_THAT(complaint(), HasSubstr("no layer 5; the capture has layers 0, 1"));
}

}  // namespace
}  // namespace qkscope
