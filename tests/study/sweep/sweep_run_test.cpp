// `qkscope sweep`: results, skipped work, failures, selections and interruptions.
#include <cmath>
#include <csignal>
#include <thread>

#include <gmock/gmock.h>

#include "base/io/output_file.h"
#include "python.h"
#include "qkscope/forward.h"
#include "qkscope/tables.h"
#include "sweep_fixture.h"

namespace qkscope {
namespace {

using testing::HasSubstr;

class SweepRuns : public SweepFixture {};

TEST_F(SweepRuns, WritesResultsTablesAndRunsJson) {
  const auto outcome = sweep("out", "");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("3 runs in"));
  EXPECT_THAT(outcome.out, HasSubstr("Layers without RoPE (NoPE) (4 heads)"));
  const auto runs = runs_of("out");
  ASSERT_EQ(runs.size(), 3u);
  EXPECT_EQ(runs[2]["label"], "third");
  EXPECT_EQ(runs[2]["phase"], "long, at last");
  EXPECT_EQ(runs[2]["order"], 2);
  EXPECT_EQ(runs[2]["state"], "done");
  EXPECT_EQ(runs[2]["results"], "runs/third");
  EXPECT_EQ(runs[2]["capture"], "captures/third");
  EXPECT_EQ(runs[2]["config"]["tokenizer"]["max_length"], 80);
  EXPECT_EQ(runs[2]["config"]["capture"]["min_bucket_size"], 20);
  EXPECT_EQ(runs[2]["config"]["capture"]["sampler"]["base_rate"], 4.0);
}

TEST_F(SweepRuns, CombinedTablesHaveTheRowsOfTheRuns) {
  ASSERT_EQ(sweep("out").status, 0);
  EXPECT_EQ(run_python("tests/study/sweep/check_tables.py", {file("out/small")}), 0);
}

TEST_F(SweepRuns, FinishedRunsAreSkipped) {
  ASSERT_EQ(sweep("out").status, 0);
  const auto before = contents("out");
  const auto summary = std::string(MappedFile(file("out/small/runs/first/summary.json")).text());
  const auto again = sweep("out", "");
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("0 done, 3 were done before, 0 failed"));
  EXPECT_EQ(std::string(MappedFile(file("out/small/runs/first/summary.json")).text()), summary);
  expect_same("out", before);
}

TEST_F(SweepRuns, OtherAnalysisOptionsRepeatOnlyTheAnalysis) {
  ASSERT_EQ(sweep("out").status, 0);
  const auto before = contents("out");
  std::filesystem::rename(tiny_checkpoint(), tiny_checkpoint() + ".away");
  write_sweep("analysis: {components: 3, plasticity: false}\n");
  const auto outcome = sweep("out", "");
  std::filesystem::rename(tiny_checkpoint() + ".away", tiny_checkpoint());
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("3 done, 0 were done before"));
  EXPECT_FALSE(path_exists(file("out/small/head_metrics.csv")));
  EXPECT_FALSE(path_exists(file("out/small/runs/first/head_metrics.csv")));
  write_sweep();
  ASSERT_EQ(sweep("out").status, 0);
  expect_same("out", before);
}

TEST_F(SweepRuns, StatisticsAddExactColumnsAndSamplingErrors) {
  write_sweep("stats: {groups: [A, B]}\n");
  ASSERT_EQ(sweep("out").status, 0);
  const Table overview = read_parquet_table(file("out/small/overview.parquet"));
  ASSERT_NE(overview.find("r_q_exact"), nullptr);
  EXPECT_EQ(overview.find("ap_drop_exact"), nullptr);  // needs rows
  const Table sampling = read_parquet_table(file("out/small/sampling.parquet"));
  // Three runs with twelve quantities and the classes.
  EXPECT_EQ(sampling.rows(), 39);
  EXPECT_EQ(sampling.find("quantity")->texts[0], "r_q");
  EXPECT_DOUBLE_EQ(sampling.find("exact")->reals[0], overview.find("r_q_exact")->reals[0]);
  EXPECT_GT(sampling.find("rms_of_heads")->reals[0], 0);
  EXPECT_TRUE(path_exists(file("out/small/attention.parquet")));
  EXPECT_EQ(runs_of("out")[1]["statistics"], "statistics/second");
  const auto before = contents("out");
  std::filesystem::rename(tiny_checkpoint(), tiny_checkpoint() + ".away");
  const auto again = sweep("out", "");
  std::filesystem::rename(tiny_checkpoint() + ".away", tiny_checkpoint());
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("0 done, 3 were done before"));
  expect_same("out", before);
}

TEST_F(SweepRuns, CompositionIsATableOfAllRuns) {
  const std::string section = "composition: {heads: '1.0', samples: 12, texts: 2, top: 5}\n";
  write_sweep(section);
  ASSERT_EQ(sweep("out").status, 0);
  const Table pairs = read_parquet_table(file("out/small/composition.parquet"));
  EXPECT_EQ(pairs.rows(), 3 * 6);  // five pairs and the others
  EXPECT_EQ(pairs.find("model")->texts.back(), "third");
  EXPECT_EQ(pairs.find("phase")->texts.back(), "long, at last");
  const Table sides = read_parquet_table(file("out/small/composition_components.parquet"));
  double explained = 0;
  for (std::size_t row = 0; row < static_cast<std::size_t>(sides.rows()); ++row)
    if (sides.find("model")->texts[row] == "second") {
      EXPECT_EQ(sides.find("samples")->integers[row], 12);
      explained += sides.find("explained")->reals[row];
    }
  EXPECT_NEAR(explained, 2.0, 1e-9);  // queries and keys
  const auto before = contents("out");
  const auto again = sweep("out", "");
  EXPECT_THAT(again.out, HasSubstr("0 done, 3 were done before"));
  write_sweep("composition: {heads: '1.0', samples: 12, texts: 2, top: 4}\n");
  EXPECT_THAT(sweep("out", "").out, HasSubstr("3 done, 0 were done before"));
  EXPECT_EQ(read_parquet_table(file("out/small/composition.parquet")).rows(), 3 * 5);
  write_sweep(section);
  ASSERT_EQ(sweep("out").status, 0);
  expect_same("out", before);
  write_sweep("composition: {heads: '99.0'}\n");
  EXPECT_THAT(sweep("out").err, HasSubstr("there is no head 99.0"));
}

// Capture and statistics from shared forward passes are byte-identical to separate passes.
class SharedPasses : public SweepRuns {
 protected:
  void compare(const std::string& options) {
    ASSERT_EQ(sweep("two", options).status, 0);  // the captures
    write_sweep("stats: {groups: [A, C], exact_rows: 3}\n");
    ASSERT_EQ(sweep("two", options).status, 0);  // the statistics
    ASSERT_EQ(sweep("one", options).status, 0);
    expect_same("one", contents("two"));
  }
};

TEST_F(SharedPasses, GiveTheBytesOfSeparatePasses) {
  compare("--quiet");
}

TEST_F(SharedPasses, GiveTheBytesOfSeparatePassesOnAGpu) {
  if (cuda_device_count() == 0) GTEST_SKIP() << why_no_cuda();
  compare("--quiet --device cuda");
}

// Capture and statistics have separate journals; each resumes from its own last entry, also if that
// entry did not reach the disk.
TEST_F(SweepRuns, AKillDuringCaptureOrStatisticsResumesToTheSameBytes) {
  write_documents(file("docs.jsonl"), kSanitized ? 150 : 300, 30);
  write_sweep("stats: {groups: [A, B]}\n", "runs:\n  - {label: first}\n");
  ASSERT_EQ(sweep("expected").status, 0);
  for (const std::string what : {"captures", "statistics"}) {
    const auto journal = file("out/small/" + what + "/first/.parts/00000-of-00001/journal.jsonl");
    const auto entries = [&] {
      const auto text = path_exists(journal) ? std::string(MappedFile(journal).text()) : "";
      return std::count(text.begin(), text.end(), '\n');
    };
    ASSERT_TRUE(kill_sweep_when("out", [&] { return entries() >= 2; })) << what;
    auto text = std::string(MappedFile(journal).text());
    text.resize(text.rfind('\n', text.size() - 2) + 1);  // drop the last entry
    write_text(journal, text);
  }
  ASSERT_EQ(sweep("out").status, 0);
  expect_same("out", contents("expected"));
}

TEST_F(SweepRuns, ASweepMayConsistOfStatisticsOnly) {
  write_sweep("capture: false\nstatistics: true\n");
  const auto outcome = sweep("out", "");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_FALSE(path_exists(file("out/small/captures/first")));
  EXPECT_FALSE(path_exists(file("out/small/sampling.csv")));
  EXPECT_EQ(runs_of("out")[0]["capture"], "statistics/first");
  const Table overview = read_parquet_table(file("out/small/overview.parquet"));
  EXPECT_FALSE(std::isnan(overview.find("r_q")->reals[0]));
  EXPECT_TRUE(std::isnan(overview.find("ap_drop")->reals[0]));
  write_sweep("capture: false\n");
  EXPECT_THAT(sweep("out").err, HasSubstr("statistics: true"));
}

TEST_F(SweepRuns, AnotherCaptureConfigurationNeedsOverwrite) {
  ASSERT_EQ(sweep("out").status, 0);
  const auto refused = sweep("out", "--set capture.min_bucket_size=32 --only first");
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("capture.min_bucket_size: 16 there, 32 now"));
  EXPECT_EQ(state_of("out", 0), "failed");
  const auto forced = sweep("out", "--set capture.min_bucket_size=32 --quiet --overwrite");
  ASSERT_EQ(forced.status, 0) << forced.err;
  EXPECT_EQ(runs_of("out")[0]["config"]["capture"]["min_bucket_size"], 32);
}

TEST_F(SweepRuns, DeviceOptionsApplyToEveryRun) {
  ASSERT_EQ(sweep("out").status, 0);
  const auto before = contents("out");
  const auto same = sweep("out", "--quiet --device cpu --dtype float32 --device-memory 1GiB");
  ASSERT_EQ(same.status, 0) << same.err;
  expect_same("out", before);
  // Another dtype is another capture configuration.
  const auto other = sweep("out", "--device cpu --dtype bfloat16 --only first");
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.err, HasSubstr("model.dtype"));
  for (const std::string option : {"--dtype int8", "--device-memory much", "--batch-tokens 0"}) {
    const auto refused = sweep("out", option);
    EXPECT_EQ(refused.status, 2) << option;
    EXPECT_THAT(refused.err, HasSubstr(option.substr(0, option.find(' '))));
  }
  const auto nowhere = sweep("new", "--device tpu");
  EXPECT_EQ(nowhere.status, 2);
  EXPECT_THAT(nowhere.err, HasSubstr("tpu"));
}

TEST_F(SweepRuns, AFailedRunDoesNotStopTheOthers) {
  ASSERT_EQ(sweep("expected").status, 0);
  const auto checkpoint = file("later");
  write_sweep("", fmt::format("runs:\n  - {{label: first, phase: short}}\n"
                              "  - {{label: gone, overrides: {{model.name: {}}}}}\n"
                              "  - {{label: third, overrides: {{tokenizer.max_length: 80}}}}\n",
                              checkpoint));
  const auto outcome = sweep("out", "");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("1 of 3 runs failed: gone"));
  EXPECT_EQ(state_of("out", 0), "done");
  EXPECT_EQ(state_of("out", 1), "failed");
  EXPECT_THAT(runs_of("out")[1]["error"].get<std::string>(), HasSubstr(checkpoint));
  EXPECT_EQ(state_of("out", 2), "done");
  const auto qk = std::string(MappedFile(file("out/small/qk.csv")).text());
  EXPECT_THAT(qk, HasSubstr("\nthird,,2,"));
  EXPECT_THAT(qk, testing::Not(HasSubstr("gone")));
  std::filesystem::create_symlink(tiny_checkpoint(), checkpoint);
  const auto again = sweep("out", "");
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("1 done, 2 were done before"));
  EXPECT_EQ(state_of("out", 1), "done");
  EXPECT_FALSE(path_exists(file("out/small/runs/gone/failure.json")));
}

TEST_F(SweepRuns, ADamagedCaptureFailsItsRun) {
  ASSERT_EQ(sweep("out").status, 0);
  write_text(file("out/small/captures/second/l00h00q/data.parquet"), "not Parquet");
  std::filesystem::remove(file("out/small/runs/second/summary.json"));
  const auto outcome = sweep("out", "");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err,
              HasSubstr("second: not a whole capture: l00h00q/data.parquet has 11 bytes"));
  EXPECT_EQ(state_of("out", 1), "failed");
}

TEST_F(SweepRuns, ADamagedStateFileFailsOnlyItsRun) {
  ASSERT_EQ(sweep("out").status, 0);
  const auto expected = contents("out");
  const auto state = file("out/small/captures/second/_saver_state.json");
  const auto whole = std::string(MappedFile(state).text());
  write_text(state, "{");
  for (const auto* text : {"", "[]", "{\"counts\": 3}"}) {
    write_text(file("out/small/runs/first/summary.json"), text);
    const auto outcome = sweep("out", "");
    EXPECT_EQ(outcome.status, 2);
    EXPECT_THAT(outcome.err, HasSubstr("second/_saver_state.json"));
    EXPECT_THAT(outcome.out, HasSubstr("1 done, 1 were done before, 1 failed")) << text;
    EXPECT_EQ(state_of("out", 1), "failed");
  }
  write_text(state, whole);
  ASSERT_EQ(sweep("out").status, 0);
  expect_same("out", expected);
}

TEST_F(SweepRuns, OnlyAndShardsAndJobsGiveTheSameBytes) {
  ASSERT_EQ(sweep("expected").status, 0);
  const auto expected = contents("expected");
  ASSERT_EQ(sweep("only", "--quiet --only third").status, 0);
  EXPECT_EQ(state_of("only", 0), "pending");
  EXPECT_EQ(state_of("only", 2), "done");
  ASSERT_EQ(sweep("only", "--quiet --only second --only first").status, 0);
  expect_same("only", expected);
  ASSERT_EQ(sweep("shards", "--quiet --shard 0/2").status, 0);
  EXPECT_EQ(state_of("shards", 1), "pending");
  ASSERT_EQ(sweep("shards", "--quiet --shard 1/2").status, 0);
  expect_same("shards", expected);
  ASSERT_EQ(sweep("jobs", "--quiet --jobs 3").status, 0);
  expect_same("jobs", expected);
}

TEST_F(SweepRuns, TwoSweepsIntoOneFolderShareTheWork) {
  ASSERT_EQ(sweep("expected").status, 0);
  const auto both = run_program(command("out", "--quiet") + " & " + command("out", "--quiet") +
                                " ; s=$?; wait $! && exit $s");
  EXPECT_EQ(both.status, 0) << both.err;
  expect_same("out", contents("expected"));
}

// The next task of a cluster starts when this one succeeds, and needs the run.
TEST_F(SweepRuns, ATaskThatLeavesItsRunToAnotherTaskFails) {
  ASSERT_EQ(sweep("out", "--quiet --only first --part capture --shard 0/1").status, 0);
  {
    const FileLock other(file("out/small/.locks/first.run"), FileLock::LockMode::exclusive,
                         FileLock::Blocking::no);
    ASSERT_TRUE(other.is_held());
    const auto merge = sweep("out", "--quiet --only first --part merge --shards 1");
    EXPECT_EQ(merge.status, 1);
    EXPECT_THAT(merge.err, HasSubstr("1 of 1 runs are at work in another task: first"));
  }
  EXPECT_EQ(sweep("out", "--quiet --only first --part merge --shards 1").status, 0);
}

TEST_F(SweepRuns, DryRunListsRemainingWorkAndWritesNothing) {
  const auto outcome = sweep("out", "--dry-run");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("first            to capture: 40 examples"));
  EXPECT_THAT(outcome.out, HasSubstr("second           to capture: 30 examples"));
  EXPECT_FALSE(path_exists(file("out")));
  ASSERT_EQ(sweep("out", "--quiet --only first").status, 0);
  EXPECT_THAT(sweep("out", "--dry-run").out, HasSubstr("first            captured, analysed"));
}

TEST_F(SweepRuns, KillsAfterEachStageResumeToTheSameBytes) {
  ASSERT_EQ(sweep("expected").status, 0);
  // The sweep is killed as soon as one of these files appears. Each file is the last one that a
  // stage writes: first journal entry, merged capture, analysis of a run, tables of the sweep.
  for (const std::string mark :
       {"captures/first/.parts/00000-of-00001/journal.jsonl", "captures/first/_saver_state.json",
        "runs/first/summary.json", "captures/second/_saver_state.json", "runs/third/summary.json",
        "qk.parquet"})
    EXPECT_TRUE(kill_sweep_when("out", [&] { return path_exists(file("out/small/" + mark)); }))
        << mark;
  ASSERT_EQ(sweep("out").status, 0);
  expect_same("out", contents("expected"));
}

TEST_F(SweepRuns, ADryRunFindsACheckpointBelowTheWorkingFolder) {
  std::filesystem::create_directory_symlink(tiny_checkpoint(), file("tiny"));
  const auto outcome = run_program(fmt::format(
      "cd {} && qkscope sweep sweep.yaml --out out --set model.name=tiny --dry-run", file("")));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("weights"));
}

TEST_F(SweepRuns, CtrlCStopsAndTheMessageTellsHowToContinue) {
  write_documents(file("docs.jsonl"), 3000, 60);
  const pid_t child = start_program(command("out"), file("err"));
  const auto journal = file("out/small/captures/first/.parts/00000-of-00001/journal.jsonl");
  for (int i = 0; i < 3000 && !path_exists(journal); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  ::kill(child, SIGINT);
  const int status = wait_for_program(child);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) << status;
  EXPECT_THAT(std::string(MappedFile(file("err")).text()),
              HasSubstr("stopped; run the same command to continue"));
  EXPECT_EQ(state_of("out", 0), "pending");
  EXPECT_EQ(state_of("out", 1), "pending");
}

}  // namespace
}  // namespace qkscope
