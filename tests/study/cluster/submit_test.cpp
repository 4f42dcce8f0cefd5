// `qkscope submit` and `qkscope status` with fake Slurm commands that record their arguments.
// tools/check_slurm.sh runs the same with a real Slurm.
#include <gmock/gmock.h>

#include "study/sweep/sweep_fixture.h"

namespace qkscope {
namespace {

using testing::HasSubstr;
using testing::Not;

class Submits : public SweepFixture {
 protected:
  void SetUp() override {
    SweepFixture::SetUp();
    std::filesystem::create_directory(file("bin"));
    for (const auto* name : {"scontrol", "scancel"}) add_tool(name, "");
    add_tool("squeue", "cat " + file("queue") + " 2>/dev/null; true\n");
    // Job ids count from 1; jobs after number $LAST are refused.
    add_tool("sbatch",
             fmt::format("n=$(grep -c ^sbatch {0})\n"
                         "if [ \"$n\" -gt \"${{LAST:-99}}\" ]; then\n"
                         "  echo 'sbatch: error: invalid partition specified: gpu' >&2\n"
                         "  echo \"sbatch: error: Batch job submission failed: $WHY\" >&2\n"
                         "  exit 1\n"
                         "fi\necho \"$n;cluster\"\n",
                         file("calls")));
  }

  // Adds a fake command that logs its arguments and runs `body`.
  void add_tool(const std::string& name, const std::string& body) {
    const auto path = file("bin/" + name);
    write_text(path,
               fmt::format("#!/bin/bash\necho {} \"$@\" >>{}\n{}", name, file("calls"), body));
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  }

  Outcome submit(const std::string& options = "", const std::string& variables = "") {
    std::filesystem::remove(file("calls"));
    return run_program(fmt::format("PATH={}:$PATH {} qkscope submit sweep {} --out {} {}",
                                   file("bin"), variables, file("sweep.yaml"), file("out"),
                                   options));
  }
  Outcome status(const std::string& options = "") {
    return run_program(fmt::format("PATH={}:$PATH qkscope status {} --out {} {}", file("bin"),
                                   file("sweep.yaml"), file("out"), options));
  }
  std::string calls() const {
    return std::filesystem::exists(file("calls")) ? std::string(MappedFile(file("calls")).text())
                                                  : "";
  }
  Json submission() const { return load_json(file("out/small/cluster/submission.json")); }
};

TEST_F(Submits, ADryRunNeedsNoSlurmAndWritesNothing) {
  const auto outcome = run_program(fmt::format(
      "qkscope submit sweep {} --out {} --shards 8 --dry-run", file("sweep.yaml"), file("out")));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("in all 10 jobs, 31 tasks"));
  EXPECT_THAT(outcome.out, HasSubstr("#SBATCH --array=0-7\n"));
  EXPECT_THAT(outcome.out, HasSubstr("--dependency=afterany:ID_OF_first.capture"));
  EXPECT_FALSE(std::filesystem::exists(file("out")));
}

TEST_F(Submits, JobsAreHeldUntilAllAreAccepted) {
  const auto outcome = submit("--shards 2");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("submitted: jobs 1 to 10"));
  const auto scripts = file("out/small/cluster/scripts/");
  const auto made = calls();
  EXPECT_THAT(made, HasSubstr("sbatch --parsable --hold " + scripts +
                              "first.capture.sh\n"
                              "sbatch --parsable --dependency=afterany:1 " +
                              scripts +
                              "first.merge.sh\n"
                              "sbatch --parsable --dependency=afterany:2 " +
                              scripts + "first.analyse.sh\n"));
  EXPECT_THAT(made, HasSubstr("sbatch --parsable --dependency=afterany:3:6:9 " + scripts +
                              "tables.sh\n"
                              "scontrol release 1,4,7\n"));
  EXPECT_EQ(submission().at("shards"), 2);
  EXPECT_EQ(submission().at("complete"), true);
  EXPECT_EQ(submission().at("jobs").at(9).at("id"), "10");
}

TEST_F(Submits, ARefusedJobCancelsTheWholeSubmission) {
  const auto outcome = submit("--shards 2", "LAST=3 WHY='Invalid account'");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err,
              HasSubstr("second.capture.sh: Batch job submission failed: Invalid account; the 3 "
                        "jobs before it are cancelled, nothing is submitted"));
  EXPECT_THAT(calls(), HasSubstr("scancel --quiet 1 2 3\n"));
  EXPECT_THAT(calls(), Not(HasSubstr("release")));
}

TEST_F(Submits, AnUnknownPartitionIsBadInput) {
  const auto outcome = submit("--partition gpu", "LAST=0 WHY='Invalid partition name specified'");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("Invalid partition name specified; nothing was submitted\n"));
}

TEST_F(Submits, AnUnreachableControllerIsAFailure) {
  add_tool("squeue",
           "echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' "
           ">&2; exit 1\n");
  const auto outcome = submit();
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.err, "error: squeue: Unable to contact slurm controller (connect failure)\n");
  EXPECT_THAT(calls(), Not(HasSubstr("sbatch")));
}

TEST_F(Submits, WithoutSlurmTheErrorNamesTheMissingCommand) {
  for (const auto* name : {"sbatch", "squeue"}) std::filesystem::remove(file("bin/") + name);
  const auto outcome =
      run_program(fmt::format("P=$(command -v qkscope); PATH={} $P submit sweep {} --out {}",
                              file("bin"), file("sweep.yaml"), file("out")));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("'squeue' is not on the PATH"));
}

TEST_F(Submits, AQueuedSweepIsNotSubmittedAgain) {
  ASSERT_EQ(submit("--shards 2").status, 0);
  write_text(file("queue"), "4|1|RUNNING|None\n77|N/A|PENDING|Resources\n");
  const auto outcome = submit("--shards 2");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err,
              HasSubstr("it is submitted already, and 1 of its tasks are in the queue (job 4, "
                        "second.capture, is RUNNING)"));
  EXPECT_THAT(calls(), Not(HasSubstr("sbatch")));
}

TEST_F(Submits, AnInterruptedSubmissionIsCancelledByTheNext) {
  ASSERT_EQ(submit("--shards 2").status, 0);
  auto broken = submission();
  broken["complete"] = false;
  broken["jobs"].erase(broken["jobs"].begin() + 2, broken["jobs"].end());
  write_text(file("out/small/cluster/submission.json"), broken.dump());
  EXPECT_THAT(status().out, HasSubstr("Slurm: the submission was broken off: submit again"));
  write_text(file("queue"), "1|0|PENDING|JobHeldUser\n");
  ASSERT_EQ(submit("--shards 2").status, 0);
  EXPECT_THAT(calls(), HasSubstr("scancel --quiet 1 2\nsbatch"));
}

TEST_F(Submits, PartsOfTasksGiveTheBytesOfAWholeSweep) {
  ASSERT_EQ(sweep("whole").status, 0);
  const auto expected = contents("whole");
  for (const auto* label : {"first", "second", "third"}) {
    // Only one of two shards: the merge captures the other.
    ASSERT_EQ(
        sweep("out", fmt::format("--quiet --only {} --part capture --shard 1/2", label)).status, 0);
    ASSERT_EQ(sweep("out", fmt::format("--quiet --only {} --part merge --shards 2", label)).status,
              0);
    ASSERT_EQ(sweep("out", fmt::format("--quiet --only {} --part analyse", label)).status, 0);
  }
  ASSERT_EQ(sweep("out", "--quiet --part tables").status, 0);
  expect_same("out", expected);
}

TEST_F(Submits, TheMergeWaitsForTheLockOfARunningTask) {
  ASSERT_EQ(sweep("out", "--quiet --only first --part capture --shard 0/2").status, 0);
  const auto outcome = run_program(fmt::format(
      "flock --shared {} sleep 1 & sleep 0.2; {}", file("out/small/captures/first/.parts/lock"),
      command("out", "--only first --part merge --shards 2")));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("waiting for a task that is at it"));
}

TEST_F(Submits, APlainSweepContinuesShardsOfTasks) {
  ASSERT_EQ(sweep("whole").status, 0);
  ASSERT_EQ(sweep("out", "--quiet --only second --part capture --shard 2/3").status, 0);
  ASSERT_EQ(sweep("out").status, 0);
  expect_same("out", contents("whole"));
}

TEST_F(Submits, ThePartTablesNamesMissingRuns) {
  ASSERT_EQ(sweep("out", "--quiet --only first --part merge").status, 0);
  ASSERT_EQ(sweep("out", "--quiet --only first --part analyse").status, 0);
  const auto outcome = sweep("out", "--part tables");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.out,
              HasSubstr("0 done, 1 were done before, 0 failed, unfinished: second, third\n"));
  EXPECT_THAT(outcome.err, HasSubstr("2 of 3 runs are missing in the tables: second, third"));
}

TEST_F(Submits, ThePartAnalyseNeedsACapture) {
  const auto outcome = sweep("out", "--only first --part analyse");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("its texts are not all captured and merged"));
}

TEST_F(Submits, StatisticsAreShardedLikeCaptures) {
  write_sweep("statistics: true\nstats: {kinds: [q, k], stages: [post]}\n");
  for (const auto* part :
       {"capture --shard 0/2", "capture --shard 1/2", "merge --shards 2", "analyse"})
    ASSERT_EQ(sweep("out", fmt::format("--quiet --only first --part {}", part)).status, 0) << part;
  EXPECT_TRUE(std::filesystem::exists(file("out/small/runs/first/exact/summary.json")));
  // The merge alone, without any task before it, gives the same bytes.
  ASSERT_EQ(sweep("again", "--quiet --only first --part merge --shards 2").status, 0);
  ASSERT_EQ(sweep("again", "--quiet --only first --part analyse").status, 0);
  expect_same("again", contents("out"));
}

TEST_F(Submits, OptionsThatContradictAPartAreRefused) {
  EXPECT_THAT(sweep("out", "--part capture --evict").err, HasSubstr("--evict: other parts"));
  EXPECT_THAT(sweep("out", "--part capture --dry-run").err, HasSubstr("leave --part out"));
  EXPECT_THAT(sweep("out", "--shards 3").err, HasSubstr("expected --part merge"));
  EXPECT_EQ(sweep("out", "--part capture --evict").status, 2);
}

TEST_F(Submits, StatusWorksWithoutASubmission) {
  ASSERT_EQ(sweep("out", "--quiet --only first").status, 0);
  const auto outcome = status();
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("1 of 3 runs done, 0 failed\n"));
  EXPECT_THAT(outcome.out, HasSubstr("second  waiting    shards: 1 waiting; 0 of 30 texts\n"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("Slurm")));
}

TEST_F(Submits, StatusShowsShardsTasksAndErrorLines) {
  ASSERT_EQ(submit("--shards 4").status, 0);
  ASSERT_EQ(sweep("out", "--quiet --only first --part capture --shard 0/4").status, 0);
  write_text(file("queue"), "1|1|RUNNING|None\n1|3|PENDING|Resources\n2|N/A|PENDING|Dependency\n");
  write_text(file("out/small/cluster/logs/first.capture.1_2.log"), "reading\nerror: disk full\n");
  const auto outcome = status();
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out,
              HasSubstr("first   capturing  shards: 1 done, 1 running, 2 waiting; 10 of 40 texts"));
  EXPECT_THAT(outcome.out, HasSubstr("Slurm: 1 tasks running, 2 waiting\n"));
  EXPECT_THAT(outcome.out, HasSubstr("first.capture 2: error: disk full\n"));
  const auto json = parse_json(status("--json").out, "status");
  const auto& shards = json.at("runs").at(0).at("shards");
  EXPECT_EQ(shards.at(0).at("state"), "done");
  EXPECT_EQ(shards.at(3).at("slurm"), "PENDING (Resources)");
  EXPECT_EQ(json.at("problems").at(0).at("task"), "first.capture 2");
}

TEST_F(Submits, WatchingEndsWhenAllRunsAreDone) {
  ASSERT_EQ(sweep("out").status, 0);
  const auto outcome = status("--watch 5");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.out, HasSubstr("3 of 3 runs done"));
}

}  // namespace
}  // namespace qkscope
