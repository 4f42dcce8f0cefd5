// The text of a job's script.
#include "study/cluster/task_script.h"

#include <gmock/gmock.h>

#include "capture/run/capture_fixture.h"

namespace qkscope {
namespace {

using testing::HasSubstr;
using testing::Not;

TaskScript small_task() {
  return {.job = "small.first.capture",
          .what = "Captures the texts.",
          .folder = "/home/me/my study",
          .log = "/results/small/cluster/logs/first.capture.%j.log",
          .command = {"/usr/bin/qkscope", "sweep", "it's a sweep.yaml", "--set", "a.b=[1, 2]"}};
}

TEST(TaskScript, IsThisText) {
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
  task.log = "/results/small/cluster/logs/first.capture.%A_%a.log";
  task.tasks = 8;
  task.runs_model = true;
  EXPECT_EQ(render_script(task, options), R"(#!/bin/bash
#SBATCH --job-name=small.first.capture
#SBATCH --chdir="/home/me/my study"
#SBATCH --output="/results/small/cluster/logs/first.capture.%A_%a.log"
#SBATCH --open-mode=append
#SBATCH --array=0-7%4
#SBATCH --partition=gpu
#SBATCH --account=lab
#SBATCH --gpus=h100:1
#SBATCH --cpus-per-task=8
#SBATCH --mem=64G
#SBATCH --time=2:00:00
#SBATCH --requeue
#SBATCH --signal=B:USR1@120

# Captures the texts.

module load cuda
export HF_HOME=/scratch/hf

program=
told=
passed_on=
interrupted=
pass_on() {
  if [ -z "$program" ] || [ -n "$passed_on" ]; then return; fi
  passed_on=yes
  kill -USR1 "$program" 2>/dev/null
}
tell() {
  interrupted=yes
  told=${told:-$1}
  pass_on
}
trap 'tell limit' USR1
trap 'tell end' TERM

/usr/bin/qkscope sweep 'it'\''s a sweep.yaml' --set 'a.b=[1, 2]' --shard "$SLURM_ARRAY_TASK_ID/8" &
program=$!
[ -z "$told" ] || pass_on
status=
while true; do
  interrupted=
  wait "$program" 2>/dev/null
  now=$?
  if [ "$now" -ne 127 ] || [ -z "$status" ]; then status=$now; fi
  [ -n "$interrupted" ] || break
done

# A task continues where it was. Slurm requeues by itself what it ended (told=end) and means to run again.
again=no
case "$status" in
  0 | 2) ;;
  *) [ "$told" = end ] || again=yes ;;
esac
restarts=${SLURM_RESTART_COUNT:-0}
if [ "$again" = yes ] && [ "$restarts" -lt 5 ]; then
  echo "qkscope: ended with status $status; requeued, $((restarts + 1)) of 5"
  scontrol requeue "$SLURM_JOB_ID" || echo "qkscope: error: it could not be requeued"
elif [ "$again" = yes ]; then
  echo "qkscope: error: ended with status $status after $restarts of 5 retries"
fi
exit "$status"
)");
}

TEST(TaskScript, LeavesOutWhatWasNotAskedFor) {
  const auto script = render_script(small_task(), {});
  for (const auto* word :
       {"--array=", "--partition", "--account", "--gpus", "--cpus", "--mem", "--time", "--shard"})
    EXPECT_THAT(script, Not(HasSubstr(word)));
}

TEST(TaskScript, OnlyTasksThatRunAModelAskForGpus) {
  auto task = small_task();
  EXPECT_THAT(render_script(task, {.gpus = "1"}), Not(HasSubstr("--gpus")));
  task.runs_model = true;
  EXPECT_THAT(render_script(task, {.gpus = "1"}), HasSubstr("#SBATCH --gpus=1\n"));
}

TEST(TaskScript, ALimitAsSlurmReadsIt) {
  EXPECT_EQ(seconds_of_limit("90"), 90 * 60);
  EXPECT_EQ(seconds_of_limit("90:30"), 90 * 60 + 30);
  EXPECT_EQ(seconds_of_limit("1:30:00"), 90 * 60);
  EXPECT_EQ(seconds_of_limit("1-12"), 36 * 3600);
  EXPECT_EQ(seconds_of_limit("1-12:30"), 36 * 3600 + 30 * 60);
}

TEST(TaskScript, AShortLimitLeavesTimeToWork) {
  EXPECT_THAT(render_script(small_task(), {.time = "2"}), HasSubstr("--signal=B:USR1@30\n"));
}

// ---- The script at work: what it does with the end of its program and with signals.

class ScriptAtWork : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(folder_.file("bin"));
    write_text(folder_.file("bin/scontrol"),
               "#!/bin/sh\necho \"$@\" >>" + folder_.file("requeued") + "\n");
    std::filesystem::permissions(folder_.file("bin/scontrol"), std::filesystem::perms::owner_all);
  }

  // Runs a script whose program is this line of shell; `before` goes before it.
  Outcome run(const std::string& program, const std::string& before = "",
              bool retries_failures = true) {
    TaskScript task{.job = "a",
                    .what = "Tries.",
                    .folder = "/",
                    .log = "/dev/null",
                    .command = {"bash", "-c", program},
                    .retries_failures = retries_failures};
    write_text(folder_.file("script.sh"), render_script(task, {.retries = 2}));
    return run_program(fmt::format("PATH={}:$PATH SLURM_JOB_ID=17 {} bash {}", folder_.file("bin"),
                                   before, folder_.file("script.sh")));
  }

  std::string requeued() const {
    const auto file = folder_.file("requeued");
    return std::filesystem::exists(file) ? std::string(MappedFile(file).text()) : "";
  }

  TemporaryFolder folder_;
};

TEST_F(ScriptAtWork, EndsAsItsProgramDoes) {
  EXPECT_EQ(run("exit 0").status, 0);
  EXPECT_EQ(run("exit 2").status, 2);  // bad input: once more would not help
  EXPECT_EQ(requeued(), "");
}

TEST_F(ScriptAtWork, RequeuesWhatFailedOrWasKilled) {
  EXPECT_EQ(run("exit 1").status, 1);
  EXPECT_EQ(requeued(), "requeue 17\n");
  const auto killed = run("kill -KILL $$");
  EXPECT_EQ(killed.status, 137);
  EXPECT_THAT(killed.out, HasSubstr("ended with status 137; requeued, 1 of 2"));
  EXPECT_EQ(requeued(), "requeue 17\nrequeue 17\n");
}

TEST_F(ScriptAtWork, TablesThatMissRunsAreNotMadeAgain) {
  EXPECT_EQ(run("exit 1", "", false).status, 1);
  EXPECT_EQ(requeued(), "");
  EXPECT_EQ(run("kill -KILL $$", "", false).status, 137);
  EXPECT_EQ(requeued(), "requeue 17\n");
}

TEST_F(ScriptAtWork, GivesUpAfterTheLastRetry) {
  const auto outcome = run("exit 1", "SLURM_RESTART_COUNT=2");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.out, HasSubstr("error: ended with status 1 after 2 of 2 retries"));
  EXPECT_EQ(requeued(), "");
}

// Before its time limit the script is told by USR1, passes it on once, waits, and is requeued.
TEST_F(ScriptAtWork, PassesTheWarningOfALimitOn) {
  const auto outcome =
      run("trap 'sleep 0.3; echo ended well; exit 138' USR1; kill -USR1 $PPID; kill -USR1 $PPID; "
          "while true; do sleep 0.05; done");
  EXPECT_EQ(outcome.status, 138);
  EXPECT_THAT(outcome.out, HasSubstr("ended well\n"));
  EXPECT_EQ(requeued(), "requeue 17\n");
}

// What Slurm ends, by scancel or to make room, is Slurm's to start again.
TEST_F(ScriptAtWork, DoesNotRequeueWhatSlurmEnds) {
  const auto outcome = run(
      "trap 'echo ended well; exit 138' USR1; kill -TERM $PPID; while true; do sleep 0.05; done");
  EXPECT_EQ(outcome.status, 138);
  EXPECT_THAT(outcome.out, HasSubstr("ended well\n"));
  EXPECT_EQ(requeued(), "");
}

}  // namespace
}  // namespace qkscope
