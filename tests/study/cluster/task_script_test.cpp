// Batch scripts: their directives, and their behaviour with programs that end, fail and are killed.
#include <gmock/gmock.h>

#include "capture/run/capture_fixture.h"
#include "qkscope/experimental/text.h"
#include "study/cluster/slurm.h"

namespace qkscope {
namespace {

using testing::HasSubstr;
using testing::Not;

BatchScript small_task() {
  return {.job = "small.first.capture",
          .what = "Captures the texts.",
          .folder = "/home/me/my study",
          .log = "/results/small/cluster/logs/first.capture.%j.log",
          .command = {"/usr/bin/qkscope", "sweep", "it's a sweep.yaml", "--set", "a.b=[1, 2]"}};
}

TEST(BatchScript, EveryOptionBecomesADirective) {
  const SlurmOptions options{.shards = 8,
                             .array_limit = 4,
                             .partition = "gpu",
                             .account = "lab",
                             .gpus = "h100:1",
                             .cpus = 8,
                             .time = "2:00:00",
                             .memory = "64G",
                             .retries = 5,
                             .environment = {"module load cuda", "export HF_HOME=/scratch/hf"}};
  auto task = small_task();
  task.tasks = 8;
  task.runs_model = true;
  const auto script = render_batch_script(task, options);
  for (const auto* option :
       {"--job-name=small.first.capture", "--chdir=\"/home/me/my study\"", "--array=0-7%4",
        "--partition=gpu", "--account=lab", "--gpus=h100:1", "--cpus-per-task=8", "--mem=64G",
        "--time=2:00:00", "--requeue", "--signal=B:USR1@120"})
    EXPECT_THAT(script, HasSubstr(fmt::format("#SBATCH {}\n", option)));
  EXPECT_LT(script.find("export HF_HOME"), script.find("/usr/bin/qkscope"));
}

TEST(BatchScript, ArgumentsAreQuotedForTheShell) {
  EXPECT_EQ(quote_for_shell("plain/path.yaml"), "plain/path.yaml");
  EXPECT_EQ(quote_for_shell("it's a sweep.yaml"), "'it'\\''s a sweep.yaml'");
  EXPECT_EQ(quote_for_shell(""), "''");
}

TEST(BatchScript, UnsetOptionsHaveNoDirective) {
  const auto script = render_batch_script(small_task(), {});
  for (const auto* word :
       {"--array=", "--partition", "--account", "--gpus", "--cpus", "--mem", "--time", "--shard"})
    EXPECT_THAT(script, Not(HasSubstr(word)));
}

TEST(BatchScript, OnlyTasksThatRunAModelRequestGpus) {
  auto task = small_task();
  EXPECT_THAT(render_batch_script(task, {.gpus = "1"}), Not(HasSubstr("--gpus")));
  task.runs_model = true;
  EXPECT_THAT(render_batch_script(task, {.gpus = "1"}), HasSubstr("#SBATCH --gpus=1\n"));
}

TEST(BatchScript, TimeLimitsFollowTheSlurmFormats) {
  EXPECT_EQ(parse_time_limit_seconds("90"), 90 * 60);
  EXPECT_EQ(parse_time_limit_seconds("90:30"), 90 * 60 + 30);
  EXPECT_EQ(parse_time_limit_seconds("1:30:00"), 90 * 60);
  EXPECT_EQ(parse_time_limit_seconds("1-12"), 36 * 3600);
  EXPECT_EQ(parse_time_limit_seconds("1-12:30"), 36 * 3600 + 30 * 60);
}

TEST(BatchScript, WarningComesAtMostAQuarterOfTheLimitEarly) {
  EXPECT_THAT(render_batch_script(small_task(), {.time = "2"}), HasSubstr("--signal=B:USR1@30\n"));
}

class RunningScript : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(folder_.file("bin"));
    write_text(folder_.file("bin/scontrol"),
               "#!/bin/sh\necho \"$@\" >>" + folder_.file("requeued") + "\n");
    std::filesystem::permissions(folder_.file("bin/scontrol"), std::filesystem::perms::owner_all);
  }

  // Runs a script whose program is a line of shell code; `before` sets environment variables.
  Outcome run(const std::string& program, const std::string& before = "",
              bool retries_failures = true) {
    BatchScript task{.job = "a",
                     .what = "Tries.",
                     .folder = "/",
                     .log = "/dev/null",
                     .command = {"bash", "-c", program},
                     .retries_failures = retries_failures};
    write_text(folder_.file("script.sh"), render_batch_script(task, {.retries = 2}));
    return run_program(fmt::format("PATH={}:$PATH SLURM_JOB_ID=17 {} bash {}", folder_.file("bin"),
                                   before, folder_.file("script.sh")));
  }

  std::string requeued() const {
    const auto file = folder_.file("requeued");
    return std::filesystem::exists(file) ? std::string(MappedFile(file).text()) : "";
  }

  TemporaryFolder folder_;
};

TEST_F(RunningScript, ExitsWithTheStatusOfItsProgram) {
  EXPECT_EQ(run("exit 0").status, 0);
  EXPECT_EQ(run("exit 2").status, 2);  // bad input: a retry cannot succeed
  EXPECT_EQ(requeued(), "");
}

TEST_F(RunningScript, RequeuesAfterAFailureOrAKill) {
  EXPECT_EQ(run("exit 1").status, 1);
  EXPECT_EQ(requeued(), "requeue 17\n");
  const auto killed = run("kill -KILL $$");
  EXPECT_EQ(killed.status, 137);
  EXPECT_THAT(killed.out, HasSubstr("ended with status 137; requeued, 1 of 2"));
  EXPECT_EQ(requeued(), "requeue 17\nrequeue 17\n");
}

TEST_F(RunningScript, WithoutFailureRetriesRequeuesOnlyAfterAKill) {
  EXPECT_EQ(run("exit 1", "", false).status, 1);
  EXPECT_EQ(requeued(), "");
  EXPECT_EQ(run("kill -KILL $$", "", false).status, 137);
  EXPECT_EQ(requeued(), "requeue 17\n");
}

TEST_F(RunningScript, StopsAfterTheLastRetry) {
  const auto outcome = run("exit 1", "SLURM_RESTART_COUNT=2");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.out, HasSubstr("error: ended with status 1 after 2 of 2 retries"));
  EXPECT_EQ(requeued(), "");
}

// Slurm sends USR1 to the script before the time limit.
TEST_F(RunningScript, ForwardsTheWarningSignalOnceAndRequeues) {
  const auto outcome =
      run("trap 'sleep 0.3; echo ended well; exit 138' USR1; kill -USR1 $PPID; kill -USR1 $PPID; "
          "while true; do sleep 0.05; done");
  EXPECT_EQ(outcome.status, 138);
  EXPECT_THAT(outcome.out, HasSubstr("ended well\n"));
  EXPECT_EQ(requeued(), "requeue 17\n");
}

// After scancel or preemption Slurm itself decides about a requeue.
TEST_F(RunningScript, DoesNotRequeueAfterTermFromSlurm) {
  const auto outcome = run(
      "trap 'echo ended well; exit 138' USR1; kill -TERM $PPID; while true; do sleep 0.05; done");
  EXPECT_EQ(outcome.status, 138);
  EXPECT_THAT(outcome.out, HasSubstr("ended well\n"));
  EXPECT_EQ(requeued(), "");
}

}  // namespace
}  // namespace qkscope
