// Our numbers beside the published ones.
#include "study/published.h"

#include <cstdlib>

#include <gmock/gmock.h>

#include "cli/run_program.h"
#include "error_message.h"
#include "io/folder.h"
#include "io/json.h"
#include "io/output_file.h"

namespace qkscope {
namespace {

using testing::HasSubstr;

OverviewRow row(const std::string& label, double r_q) {
  return {.label = label, .phase = "", .layers = "all", .heads = 4, .values = {{"r_q", r_q}}};
}

TEST(Published, HoldsTenCheckpointsWithNamesOfTheOverview) {
  const auto published = read_published("smollm3");
  ASSERT_EQ(published.size(), 10u);
  const std::set<std::string> names(overview_measures().begin(), overview_measures().end());
  for (const auto& run : published)
    for (const auto& [name, value] : run.values) EXPECT_TRUE(names.contains(name)) << name;
  EXPECT_THROW(read_published("gpt2"), Error);
}

// The data folder is one of the test's own.
class PublishedFiles : public testing::Test {
 protected:
  void SetUp() override {
    make_folders(folder_.file("published"));
    ::setenv("QKSCOPE_DATA", folder_.path().c_str(), 1);
  }
  void TearDown() override { ::unsetenv("QKSCOPE_DATA"); }

  std::string complaint(const std::string& rows) const {
    write_file(file(), "model,phase,measure,value\n" + rows);
    return bad_input_message([] { read_published("mine"); });
  }
  std::string file() const { return folder_.file("published/mine.csv"); }

  TemporaryFolder folder_;
};

TEST_F(PublishedFiles, AreTheSetsThereAre) {
  EXPECT_TRUE(published_sets().empty());
  EXPECT_EQ(bad_input_message([] { read_published("smollm3"); }),
            "the published numbers are not there; looked in " + folder_.path() +
                ". Set QKSCOPE_DATA to the folder share/qkscope of an installation");
  write_file(file(), "model,phase,measure,value\nb,late,r_q,0.5\na,early,r_k,1e-3\nb,late,r_k,1\n");
  write_file(folder_.file("published/README.md"), "");
  EXPECT_EQ(published_sets(), std::vector<std::string>{"mine"});
  EXPECT_EQ(bad_input_message([] { read_published("../mine"); }),
            "--published \"../mine\": known is mine");
  const auto runs = read_published("mine");
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].label, "b");
  EXPECT_EQ(runs[0].values, (std::map<std::string, double>{{"r_q", 0.5}, {"r_k", 1.0}}));
  EXPECT_EQ(runs[1].phase, "early");
  write_file(folder_.file("published/other.csv"), "");
  EXPECT_EQ(bad_input_message([] { read_published("x"); }),
            "--published \"x\": known are mine, other");
}

TEST_F(PublishedFiles, MistakesAreNamedWithFileAndRow) {
  EXPECT_EQ(complaint(""), file() + ": holds no numbers");
  EXPECT_EQ(complaint("a,p,r_q,0.5\na,p,r_k,high\n"),
            file() + ": row 3: value: found \"high\", expected a number");
  EXPECT_EQ(complaint("a,p,r_q,\n"), file() + ": row 2: the value is missing, expected a number");
  EXPECT_EQ(complaint("a,p,r_Q,1\n"),
            file() + ": row 2: \"r_Q\" is not a measure of an overview; did you mean r_q?");
  EXPECT_EQ(complaint("a,p,r_q,1\na,p,r_q,1\n"), file() + ": row 3: r_q of a is there twice");
  EXPECT_EQ(complaint("a,p,r_q,1\na,q,r_k,1\n"),
            file() + ": row 3: a is in phase \"q\", above in \"p\"");
}

TEST(Compare, LabelsDecide) {
  const std::vector<OverviewRow> rows = {row("LC2-20K", 0.9), row("other", 0.1)};
  const auto published = read_published("smollm3");
  const auto comparison = match_runs(published, rows);
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
  const auto published = read_published("smollm3");
  const auto comparison = match_runs(published, rows);
  EXPECT_FALSE(comparison.by_label);
  EXPECT_EQ(comparison.runs[3].ours->label, "x3");
  rows.resize(4);
  EXPECT_THROW(match_runs(published, rows), Error);
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
