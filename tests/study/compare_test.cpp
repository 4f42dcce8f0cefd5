// Our numbers beside the published ones.
#include <gmock/gmock.h>

#include "cli/run_program.h"
#include "io/folder.h"
#include "io/output_file.h"
#include "study/published.h"

namespace qkscope {
namespace {

using testing::HasSubstr;

OverviewRow row(const std::string& label, double r_q) {
  return {.label = label, .phase = "", .layers = "all", .heads = 4, .values = {{"r_q", r_q}}};
}

TEST(Published, HoldsTenCheckpointsWithNamesOfTheOverview) {
  const auto published = published_runs("smollm3");
  ASSERT_EQ(published.size(), 10u);
  std::set<std::string> names;
  for (const auto& measure : overview_measures()) names.insert(measure.name);
  for (const auto& run : published)
    for (const auto& [name, value] : run.values) EXPECT_TRUE(names.contains(name)) << name;
  EXPECT_THROW(published_runs("gpt2"), Error);
}

TEST(Compare, LabelsDecide) {
  const std::vector<OverviewRow> rows = {row("LC2-20K", 0.9), row("other", 0.1)};
  const auto comparison = compare_with(published_runs("smollm3"), rows);
  EXPECT_TRUE(comparison.by_label);
  EXPECT_EQ(comparison.runs.front().ours, nullptr);
  EXPECT_EQ(comparison.runs.back().ours, &rows[0]);
}

TEST(Compare, OtherLabelsAreMatchedByOrderWhenThereAreAsMany) {
  std::vector<OverviewRow> rows;
  for (int i = 0; i < 10; ++i) {
    rows.push_back(row("x" + std::to_string(i), 0.1 * i));
    rows.push_back(row("x" + std::to_string(i), 0.0));
    rows.back().layers = "rope";
  }
  const auto comparison = compare_with(published_runs("smollm3"), rows);
  EXPECT_FALSE(comparison.by_label);
  EXPECT_EQ(comparison.runs[3].ours->label, "x3");
  rows.resize(4);
  EXPECT_THROW(compare_with(published_runs("smollm3"), rows), Error);
}

class CompareCommand : public testing::Test {
 protected:
  void write_sweep(const std::string& label) {
    const Json run = {{"label", label}, {"phase", "stage1"}, {"order", 0}, {"state", "done"}};
    write_file(folder_.file("runs.json"), Json{{"name", "s"}, {"runs", {run}}}.dump());
    make_folders(folder_.file("runs/" + label));
    const Json means = {{"all", {{"r_q", {{"mean", 0.7}}}, {"r_k", {{"mean", 0.4}}}}}};
    const Json counts = {{"analysed", 300}, {"rope", 300}, {"nope", 0}, {"unknown", 0}};
    write_file(folder_.file("runs/" + label + "/summary.json"),
               Json{{"pca", means}, {"counts", counts}}.dump());
  }
  Outcome compare(const std::string& options = "") const {
    return run_program("qkscope compare " + folder_.path() + " " + options);
  }

  TemporaryFolder folder_;
};

TEST_F(CompareCommand, PrintsBothAndTheDifference) {
  write_sweep("S1-40K");
  const auto outcome = compare("--published smollm3");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto line = [](const char* checkpoint, const char* run, const char* numbers) {
    return fmt::format("\n  {:<20}{:<18}{}\n", checkpoint, run, numbers);
  };
  EXPECT_THAT(outcome.out, HasSubstr(line("S1-40K", "S1-40K", "      0.67       0.7       +0.03")));
  EXPECT_THAT(outcome.out, HasSubstr(line("S1-40K", "S1-40K", "      0.46       0.4       -0.06")));
  EXPECT_THAT(outcome.out, HasSubstr(line("S1-40K", "S1-40K", "    0.0092         -           -")));
  EXPECT_THAT(outcome.out,
              HasSubstr(line("LC2-20K", "not finished", "      0.87         -           -")));
  const auto csv = compare("--csv");
  EXPECT_THAT(csv.out, HasSubstr("measure,checkpoint,model,published,ours,difference\n"));
  EXPECT_THAT(csv.out, HasSubstr("bias_strength,S1-40K,S1-40K,0.0092,,\n"));
}

TEST_F(CompareCommand, BadInputIsSaid) {
  EXPECT_EQ(compare().status, 2);
  EXPECT_THAT(compare().err, HasSubstr("there is no runs.json"));
  write_sweep("mine");
  EXPECT_EQ(compare().status, 2);
  EXPECT_THAT(compare().err, HasSubstr("1 finished runs cannot be matched with 10"));
  EXPECT_EQ(compare("--published gpt2").status, 2);
  write_file(folder_.file("runs/mine/summary.json"), "{}");
  EXPECT_THAT(compare().err, HasSubstr("not a summary"));
  write_file(folder_.file("runs.json"), "{\"runs\": [{\"label\": 3}]}");
  EXPECT_THAT(compare().err, HasSubstr("not a list of runs as a sweep writes it"));
  write_file(folder_.file("runs.json"), "[]");
  EXPECT_EQ(compare().status, 2);
}

}  // namespace
}  // namespace qkscope
