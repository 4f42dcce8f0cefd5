// The command `qkscope compare`.
#include <cmath>

#include <gmock/gmock.h>

#include "cli/run_program.h"
#include "error_message.h"
#include "qkscope/experimental/study.h"
#include "study/compare/result_tables.h"

namespace qkscope {
namespace {

using testing::HasSubstr;
using testing::Not;

class Compare : public testing::Test {
 protected:
  std::string file(const std::string& name) const { return folder_.file(name); }
  // Runs in the temporary folder of the test.
  Outcome compare(const std::string& arguments) const {
    return run_program("cd " + folder_.path() + "; qkscope compare " + arguments);
  }
  // Returns the row whose first text columns have these values.
  static std::size_t row_of(const Table& table, const std::vector<std::string>& texts) {
    for (std::size_t row = 0; row < static_cast<std::size_t>(table.rows()); ++row) {
      bool same = true;
      for (std::size_t i = 0; i < texts.size(); ++i)
        same = same && table.columns()[i].texts[row] == texts[i];
      if (same) return row;
    }
    ADD_FAILURE() << texts.front() << " is not there";
    return 0;
  }
  static double number(const Table& table, const char* column, std::size_t row) {
    return table.find(column)->reals[row];
  }

  TemporaryFolder folder_;
};

constexpr char kErrors[] = "r_q,all,0.7,0.01,0,1,5,2\nap_profile_overall,all,0.6,0.02,0,1,5,2\n";

TEST_F(Compare, StandardErrorsOfBothSidesAddInQuadrature) {
  write_made_sweep(file("s"), {"S1-40K", "other"}, made_heads(), kErrors);
  const auto table = compare_with_published(file("s"));
  const auto r_q = row_of(table, {"r_q", "S1-40K", "S1-40K"});
  EXPECT_DOUBLE_EQ(number(table, "published", r_q), 0.671);
  EXPECT_DOUBLE_EQ(number(table, "ours", r_q), 0.7);
  EXPECT_DOUBLE_EQ(number(table, "difference", r_q), 0.7 - 0.671);
  EXPECT_DOUBLE_EQ(number(table, "se_published", r_q), 0.002);
  EXPECT_DOUBLE_EQ(number(table, "se_ours", r_q), 0.01);
  EXPECT_DOUBLE_EQ(number(table, "se", r_q), std::hypot(0.002, 0.01));
  EXPECT_DOUBLE_EQ(number(table, "z", r_q), (0.7 - 0.671) / std::hypot(0.002, 0.01));
  const auto ap = row_of(table, {"ap_overall", "S1-40K"});
  EXPECT_DOUBLE_EQ(number(table, "ours", ap), 0.6);
  EXPECT_EQ(table.find("our_column")->texts[ap], "mean of head_metrics ap_profile_overall");
  const auto r_k = row_of(table, {"r_k", "S1-40K"});  // errors.csv does not have it
  EXPECT_TRUE(std::isnan(number(table, "se", r_k)));
  EXPECT_TRUE(std::isnan(number(table, "z", r_k)));
  EXPECT_FALSE(std::isnan(number(table, "difference", r_k)));
  const auto absent = row_of(table, {"r_q", "LC2-20K", ""});
  EXPECT_TRUE(std::isnan(number(table, "ours", absent)));
  EXPECT_EQ(table.find("note")->texts[absent], "there is no such run here");
}

TEST_F(Compare, PrintsBothNumbersAndReasonsForMissingOnes) {
  write_made_sweep(file("s"), {"S1-40K"}, made_heads(), kErrors);
  const auto outcome = compare("s --published smollm3 --out results/table");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("0.671 ± 0.002"));
  EXPECT_THAT(outcome.out, HasSubstr("0.7 ± 0.01      +0.029    0.0102    +2.8\n"));
  EXPECT_THAT(outcome.out, HasSubstr("0.2 ± ?"));
  EXPECT_THAT(outcome.out, HasSubstr("the error is absent for "));
  EXPECT_THAT(outcome.out, HasSubstr("\nnot compared\n"));
  EXPECT_THAT(outcome.out, HasSubstr("the results have no separation_strength in a table rotated"));
  EXPECT_THAT(outcome.out, HasSubstr("a setting of the study, nothing measured"));
  EXPECT_THAT(outcome.out, HasSubstr("no run here for S1-1.2M, S1-2.4M"));
  const auto csv = compare("s --csv");
  EXPECT_THAT(csv.out,
              HasSubstr("measure,checkpoint,model,published,ours,difference,se_published,se_ours,"
                        "se,z,our_column,kind,source,note\n"));
  EXPECT_EQ(std::string(MappedFile(file("results/table/compare.csv")).text()), csv.out);
}

TEST_F(Compare, AsComparesASingleAnalysisWithAPublishedName) {
  write_made_results(file("r"), "my model", made_heads());
  EXPECT_THAT(compare("r --published models").err, HasSubstr("--as NAME says"));
  const auto outcome = compare("r --published models --as qwen3-4b");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("qwen3-4b / my model"));
  EXPECT_THAT(compare("r --published models --as qwen3-5b").err,
              HasSubstr("did you mean qwen3-4b?"));
  const auto profile = compare("r --published profiles --as S1-40K");
  ASSERT_EQ(profile.status, 0) << profile.err;
  EXPECT_THAT(profile.out, HasSubstr("length_bins 256-512"));
  EXPECT_THAT(profile.out, HasSubstr("no bin of our profile lies there"));
}

TEST_F(Compare, UserFilesAreReadLikeInstalledSets) {
  write_made_results(file("r"), "mine", made_heads(), kErrors);
  write_file(file("own.csv"),
             "checkpoint,quantity,value,uncertainty\nmine,r_q,0.65,0.03\nmine,charm,1,\n");
  const auto outcome = compare("r --published own.csv");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("not computed by qkscope"));
  EXPECT_THAT(outcome.out, HasSubstr(": charm\n"));
  const auto table =
      compare_with_published(file("r"), {.published = file("own.csv"), .only = {}, .as = ""});
  EXPECT_DOUBLE_EQ(number(table, "se_published", 0), 0.03);
  write_file(file("nothing.csv"), "checkpoint,quantity,value\nmine,charm,1\n");
  const auto nothing = compare("r --published nothing.csv");
  EXPECT_EQ(nothing.status, 2);
  EXPECT_THAT(nothing.err, HasSubstr("none of its numbers can be compared"));
}

TEST_F(Compare, PooledNumbersAreComparedWithAllRunsTogether) {
  write_made_sweep(file("s"), {"a", "b", "c"}, made_heads());
  const auto open = compare("s --published pooled");
  EXPECT_EQ(open.status, 2);
  EXPECT_THAT(open.err, HasSubstr("say which with --as SCOPE"));
  const auto outcome =
      compare("s --published pooled --as '11 models, 3239 heads' --only a --only b");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("class_mixed"));
  EXPECT_THAT(outcome.out, HasSubstr("11 models, 3239 heads / 2 runs"));
}

TEST_F(Compare, EverySourceAddsSourcesThatAreNotPreferred) {
  write_made_sweep(file("s"), {"S1-40K"}, made_heads());
  EXPECT_THAT(compare("s").out, Not(HasSubstr(" 0.67 ±")));
  EXPECT_THAT(compare("s --all-sources").out, HasSubstr(" 0.67 ±"));
}

TEST_F(Compare, UnknownLabelsAreMatchedByOrderIfCountsAgree) {
  write_made_sweep(file("s"), {"x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9"},
                   made_heads());
  const auto outcome = compare("s");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("matched by order"));
  EXPECT_THAT(outcome.out, HasSubstr("  S1-3.44M / x3 "));
}

TEST_F(Compare, TwoSweepsAreMatchedByLabel) {
  auto later = made_heads();
  for (auto& head : later) head.r_q += 0.1;
  write_made_sweep(file("a"), {"one", "two"}, made_heads(), kErrors);
  write_made_sweep(file("b"), {"two", "three"}, later, "r_q,all,0.8,0.03,0,1,5,2\n");
  const auto outcome = compare("a b --out out");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("only in a: one"));
  EXPECT_THAT(outcome.err, HasSubstr("only in b: three"));
  EXPECT_EQ(outcome.out.find("two "), 0u);  // one pair of runs, a line for each measure
  EXPECT_THAT(outcome.out,
              HasSubstr("0.7 ± 0.01          0.8 ± 0.03        +0.1   0.03162    +3.2\n"));
  EXPECT_TRUE(path_exists(file("out/compare.csv")));
  const auto table = compare_runs(file("a"), file("b"));
  const auto r_q = row_of(table, {"r_q", "two", "two"});
  EXPECT_DOUBLE_EQ(number(table, "z", r_q),
                   number(table, "difference", r_q) / std::hypot(0.01, 0.03));
}

TEST_F(Compare, TwoSingleRunsAreMatchedWhateverTheirLabels) {
  write_made_results(file("a"), "before", made_heads());
  write_made_sweep(file("b"), {"after"}, made_heads());
  const auto outcome = compare("a b");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("before / after"));
  EXPECT_THAT(outcome.out, HasSubstr("the error is absent for "));
}

TEST_F(Compare, DifferentAnalysisOptionsGiveAWarning) {
  write_made_results(file("a"), "a", made_heads());
  write_made_results(file("b"), "b", made_heads());
  write_file(file("a/summary.json"),
             R"({"model": "a", "options": {"taxonomy_high": 0.7, "seed": 0}})");
  write_file(file("b/summary.json"),
             R"({"model": "b", "options": {"taxonomy_high": 0.8, "seed": 0}})");
  EXPECT_THAT(compare("a b").err, HasSubstr("other options: taxonomy_high 0.7 and 0.8"));
}

TEST_F(Compare, BadInputIsReported) {
  const auto refused = [&](const std::string& arguments, const std::string& words) {
    const auto outcome = compare(arguments);
    EXPECT_EQ(outcome.status, 2) << arguments;
    EXPECT_THAT(outcome.err, HasSubstr(words));
  };
  refused("none", "there is no runs.json and no summary.json");
  write_made_sweep(file("s"), {"mine"}, made_heads());
  refused("s", "1 finished runs cannot be matched with 10");
  refused("s --published gpt2", "known are benchmarks, models");
  refused("s --published gpt2.csv", "gpt2.csv");
  refused("s --only yours", "has no finished run of this name; there are mine");
  refused("s s --published smollm3", "excludes");
  write_file(file("taken"), "");
  refused("s --as S1-40K --out taken/x", "is a file");
  write_made_sweep(file("t"), {"a", "b"}, made_heads());
  refused("t --as S1-40K", "2 runs cannot stand for one");
  refused("s t", "no label is in both: mine and a, b");
  write_file(file("t/runs/a/errors.csv"), "quantity,mean\n");
  refused("t t", "errors.csv: there is no column \"heads\"");
  write_file(file("t/runs/a/qk.parquet"), "no");
  refused("t t", "qk.parquet");
  write_file(file("s/runs.json"), "{\"runs\": [{\"label\": 3}]}");
  refused("s", "not a list of runs as a sweep writes it");
  write_file(file("s/runs.json"), "{\"runs\": []}");
  refused("s", "no run of this sweep is finished");
  write_file(file("s/runs.json"), "[]");
  refused("s", "expected an object with a list of runs");
  make_folders(file("r"));
  write_file(file("r/summary.json"), "{}");
  refused("r", "not a summary as an analysis writes it");
}

}  // namespace
}  // namespace qkscope
