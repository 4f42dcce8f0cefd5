// Commands analyze and pool: selected heads, few rows, several results.
#include <filesystem>

#include <gmock/gmock.h>

#include "base/io/json.h"
#include "base/io/output_file.h"
#include "run_program.h"

namespace qkscope {
namespace {

using testing::HasSubstr;
using testing::Not;

class Analyze : public testing::Test {
 protected:
  Outcome synth(const std::string& name, const std::string& options) const {
    return run_program(
        "qkscope synth " + folder_.file(name) +
        " --layers 3 --head-counts 4,2 --context 512 --buckets 8 --planes 1 --quiet " + options);
  }
  Outcome run(const std::string& command, const std::string& capture, const std::string& out,
              const std::string& options) const {
    return run_program("qkscope " + command + " " + folder_.file(capture) + " --out " +
                       folder_.file(out) + " " + options);
  }
  std::string text(const std::string& name) const {
    return std::string(MappedFile(folder_.file(name)).text());
  }

  TemporaryFolder folder_;
};

TEST_F(Analyze, PrintsClassesMeansHeadsAndTheNextCommand) {
  ASSERT_EQ(synth("capture", "--dim 8 --examples 12").status, 0);
  const auto outcome = run("analyze", "capture", "results", "");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  for (const auto* part :
       {": 12 heads, 12 texts\n", "\n  position_dominated ", "\n  content_focused ",
        "\n  correlation of queries with position on PC0 (r_q) ", "\n  attention plasticity (ap) ",
        "\nmost positional ", "\nmost content-focused ", "\nnext:\n  qkscope figures "})
    EXPECT_THAT(outcome.out, HasSubstr(part));
  const auto listed = outcome.out.find("\n  layer ");
  EXPECT_NE(listed, std::string::npos);
  // Five heads in each of the two lists.
  std::size_t heads = 0;
  for (auto at = listed; at != std::string::npos; at = outcome.out.find("\n  layer ", at + 1))
    ++heads;
  EXPECT_EQ(heads, 10U) << outcome.out;
  EXPECT_EQ(run("analyze", "capture", "quiet", "--quiet").out, "");
  const auto rotation = run("analyze --only rotation", "capture", "rotation", "").out;
  EXPECT_THAT(rotation, HasSubstr("bias_strength"));
  EXPECT_THAT(rotation, Not(HasSubstr("most positional")));
}

TEST_F(Analyze, SelectsLayersAndHeads) {
  ASSERT_EQ(synth("capture", "--dim 8 --examples 12").status, 0);
  auto outcome =
      run("analyze --only rotation", "capture", "some", "--layers 0,2 --heads '(0,1),(2,3),(1,1)'");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(load_json(folder_.file("some") + "/summary.json").at("counts").at("heads"), 2);
  for (const auto& [options, message] : std::vector<std::pair<std::string, std::string>>{
           {"--layers 1-5", "there is no layer 3; the capture has layers 0, 1, 2"},
           {"--heads 1.7", "there is no query head 7 in layer 1; the capture has heads 0, 1, 2, 3"},
           {"--heads 17", "'17' is not a head; expected LAYER.HEAD"},
           {"--layers 3-1", "'3-1' is not a layer; expected numbers and ranges"},
           {"--layers 0 --heads 1.1", "the chosen layers and heads have no head in common"}}) {
    for (const char* command : {"analyze", "analyze --only pca", "analyze --only plasticity"}) {
      outcome = run(command, "capture", "none", options);
      EXPECT_EQ(outcome.status, 2) << options;
      EXPECT_THAT(outcome.err, HasSubstr(message));
    }
  }
}

TEST_F(Analyze, WarnsOnceAboutFewRows) {
  ASSERT_EQ(synth("few", "--dim 64 --examples 2 --set drift_q=0 --set drift_k=0").status, 0);
  const auto outcome = run("analyze", "few", "results", "");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  const auto first = outcome.err.find("in 12 of 12 heads rows are few");
  ASSERT_NE(first, std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.err.find("rows are few", first + 20), std::string::npos) << outcome.err;
  EXPECT_THAT(text("results/rotated.csv"), HasSubstr("position_r_null"));
  EXPECT_EQ(load_json(folder_.file("results") + "/summary.json").at("warnings").size(), 1);
  ASSERT_EQ(synth("many", "--dim 4 --examples 20 --set drift_q=0.01 --set drift_k=0.01").status, 0);
  EXPECT_THAT(run("analyze", "many", "enough", "").err, Not(HasSubstr("warning")));
}

TEST_F(Analyze, APartialCaptureIsRefusedOrMarksEveryTable) {
  ASSERT_EQ(synth("capture", "--dim 8 --examples 12").status, 0);
  std::filesystem::create_directory(folder_.file("capture") + "/.parts");
  std::filesystem::remove(folder_.file("capture") + "/_saver_state.json");
  auto outcome = run("analyze", "capture", "results", "--quiet --head-counts 4,2");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("not a whole capture: its run has not finished"));
  outcome = run("analyze", "capture", "results", "--quiet --head-counts 4,2 --partial --label m");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  for (const char* table : {"qk", "taxonomy", "rotated", "head_metrics", "errors"})
    EXPECT_THAT(text(std::string("results/") + table + ".csv"), HasSubstr("m (partial),")) << table;
}

TEST_F(Analyze, HeadFilesOfAnotherRunAreRefused) {
  ASSERT_EQ(synth("capture", "--dim 8 --examples 12").status, 0);
  run_program("cp " + folder_.file("capture") + "/l01h02q/data.parquet " + folder_.file("capture") +
              "/l02h02q/data.parquet");
  const auto outcome = run("analyze", "capture", "results", "--quiet");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("l02h02q/data.parquet"));
  EXPECT_FALSE(std::filesystem::exists(folder_.file("results") + "/summary.json"));
}

TEST_F(Analyze, OnlyOneAnalysisWritesIntoAFolder) {
  ASSERT_EQ(synth("capture", "--dim 8 --examples 12").status, 0);
  const auto lock = folder_.file("results") + "/.analyze.lock";
  auto outcome =
      run_program("mkdir " + folder_.file("results") + "; flock " + lock + " qkscope analyze " +
                  folder_.file("capture") + " --quiet --out " + folder_.file("results"));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("another analysis is writing into this folder"));
  EXPECT_EQ(run_program("qkscope figures " + folder_.file("results") + " --out " +
                        folder_.file("figures"))
                .status,
            2);
  outcome = run("analyze", "capture", "results", "--quiet");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_FALSE(std::filesystem::exists(lock));
}

TEST_F(Analyze, ATruncatedTableIsNotDrawn) {
  ASSERT_EQ(synth("capture", "--dim 8 --examples 12").status, 0);
  ASSERT_EQ(run("analyze", "capture", "results", "--quiet").status, 0);
  run_program("truncate -s -1 " + folder_.file("results") + "/qk.parquet");
  const auto outcome = run("figures", "results", "figures", "--quiet");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("qk.parquet: has "));
}

TEST_F(Analyze, CheckNamesDamagedFiles) {
  ASSERT_EQ(synth("capture", "--dim 8 --examples 12").status, 0);
  ASSERT_EQ(run("analyze", "capture", "results", "--quiet").status, 0);
  const auto check = [&](const std::string& name) {
    return run_program("qkscope check " + folder_.file(name));
  };
  EXPECT_THAT(check("capture").out, HasSubstr("capture, 18 files"));
  EXPECT_THAT(check("results").out, HasSubstr("all intact"));
  for (const std::string file : {"capture/l01h02q/data.parquet", "results/qk.csv"}) {
    std::string text(MappedFile(folder_.file(file)).text());
    text[text.size() / 2] ^= 1;
    write_file(folder_.file(file), text);
    const auto outcome = check(file.substr(0, file.find('/')));
    EXPECT_EQ(outcome.status, 2);
    EXPECT_THAT(outcome.out, HasSubstr(file));
    EXPECT_THAT(outcome.err, HasSubstr("1 of "));
  }
  EXPECT_EQ(check("none").status, 2);
}

TEST_F(Analyze, AFileSizeLimitIsAnErrorMessage) {
  const auto outcome = run_program("ulimit -f 8; qkscope synth " + folder_.file("large") +
                                   " --dim 64 --examples 50 --quiet");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("File too large"));
}

TEST_F(Analyze, OptionsTurnOffErrorsAndNullDistributions) {
  ASSERT_EQ(synth("capture", "--dim 8 --examples 12").status, 0);
  ASSERT_EQ(run("analyze", "capture", "with", "--quiet").status, 0);
  EXPECT_THAT(text("with/errors.csv"), HasSubstr("planted,ap_drop,all,"));
  const auto outcome =
      run("analyze", "capture", "without", "--no-errors --null-draws 0 --separate-pca 0");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  const auto files = run_program("ls " + folder_.file("without")).out;
  EXPECT_THAT(files, Not(HasSubstr("errors")));
  EXPECT_THAT(files, Not(HasSubstr("correlations")));
  const auto summary = load_json(folder_.file("without") + "/summary.json");
  EXPECT_EQ(summary.at("undefined").at("rotated.csv").at("position_r_p").at("no_shuffles"), 12);
}

TEST_F(Analyze, PoolWritesTablesOverSeveralResults) {
  std::string results;
  for (const std::string label : {"a", "b", "c"}) {
    ASSERT_EQ(
        synth("capture-" + label, "--dim 8 --examples 12 --seed " + std::to_string(label.front()))
            .status,
        0);
    ASSERT_EQ(run("analyze", "capture-" + label, label, "--quiet --label " + label).status, 0);
    results += " " + folder_.file(label);
  }
  run_program("printf 'model,score\\na,1\\nb,2\\nc,4\\n' > " + folder_.file("scores.csv"));
  const auto outcome =
      run_program("qkscope pool" + results + " --out " + folder_.file("pooled") +
                  " --pair r_q_pc0,alpha_k --scores " + folder_.file("scores.csv"));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("bias_strength"));
  EXPECT_THAT(text("pooled/pooled.csv"), HasSubstr("all,all,ap_drop,36,"));
  EXPECT_THAT(text("pooled/pooled_depth.csv"), HasSubstr("b,r_k_a,9,"));
  EXPECT_THAT(text("pooled/head_correlations.csv"), HasSubstr("all,r_q_pc0,alpha_k,36,"));
  EXPECT_THAT(text("pooled/score_correlations.csv"), HasSubstr("score,bias_strength,3,"));
  const auto wrong = run_program("qkscope pool" + results + " --out " + folder_.file("pooled") +
                                 " --pair r_q_pc0");
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.err, HasSubstr("expected two quantities, X,Y"));
}

}  // namespace
}  // namespace qkscope
