// --shard auto: reads the shard from the environment variables of a scheduler.
#include <gmock/gmock.h>

#include "base/io/folder.h"
#include "capture_fixture.h"

namespace qkscope {
namespace {

using testing::HasSubstr;

class SchedulerShard : public CaptureFixture {
 protected:
  // Unsets the variables of a scheduler that may run the tests.
  static constexpr char kClean[] =
      "env -u SLURM_ARRAY_TASK_ID -u SLURM_ARRAY_TASK_COUNT -u SLURM_ARRAY_TASK_MIN "
      "-u SLURM_ARRAY_TASK_STEP -u JOB_COMPLETION_INDEX -u JOB_COMPLETIONS "
      "-u QKSCOPE_SHARD_INDEX -u QKSCOPE_SHARD_COUNT ";

  Outcome run(const std::string& variables, const std::string& options = "") const {
    return run_program(kClean + variables + " " + command("out", "--shard auto " + options));
  }

  void expect_part(const std::string& variables, const std::string& part) const {
    std::filesystem::remove_all(file("out"));
    const auto outcome = run(variables);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_TRUE(path_exists(file("out/.parts/" + part))) << variables;
  }

  void expect_refused(const std::string& variables, const std::string& why) const {
    const auto outcome = run(variables, "--dry-run");
    EXPECT_EQ(outcome.status, 2) << variables;
    EXPECT_THAT(outcome.err, HasSubstr(why)) << variables;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  }
};

constexpr char kArray[] = "SLURM_ARRAY_TASK_COUNT=3 SLURM_ARRAY_TASK_MIN=1 ";

TEST_F(SchedulerShard, ReadsShardsOfSlurmKubernetesAndOwnVariables) {
  expect_part(std::string(kArray) + "SLURM_ARRAY_TASK_ID=1", "00000-of-00003");
  expect_part(std::string(kArray) + "SLURM_ARRAY_TASK_ID=3", "00002-of-00003");
  expect_part(
      "SLURM_ARRAY_TASK_ID=14 SLURM_ARRAY_TASK_COUNT=3 SLURM_ARRAY_TASK_MIN=10 "
      "SLURM_ARRAY_TASK_STEP=2",
      "00002-of-00003");
  expect_part("JOB_COMPLETION_INDEX=1 JOB_COMPLETIONS=4", "00001-of-00004");
  expect_part(
      "QKSCOPE_SHARD_INDEX=0 QKSCOPE_SHARD_COUNT=2 JOB_COMPLETION_INDEX=1 "
      "JOB_COMPLETIONS=4",
      "00000-of-00002");
}

TEST_F(SchedulerShard, RefusesInconsistentVariables) {
  expect_refused("", "no scheduler says which task this is");
  expect_refused("SLURM_ARRAY_TASK_ID=1",
                 "SLURM_ARRAY_TASK_ID is set and SLURM_ARRAY_TASK_COUNT is not");
  expect_refused("JOB_COMPLETIONS=2", "JOB_COMPLETIONS is set and JOB_COMPLETION_INDEX is not");
  expect_refused("JOB_COMPLETION_INDEX=x JOB_COMPLETIONS=2", "JOB_COMPLETION_INDEX");
  expect_refused("JOB_COMPLETION_INDEX= JOB_COMPLETIONS=2", "JOB_COMPLETION_INDEX");
  expect_refused("JOB_COMPLETION_INDEX=2 JOB_COMPLETIONS=2", "is none of 2 tasks");
  expect_refused("JOB_COMPLETION_INDEX=-1 JOB_COMPLETIONS=2", "is none of 2 tasks");
  expect_refused("QKSCOPE_SHARD_INDEX=0 QKSCOPE_SHARD_COUNT=0", "is none of 0 tasks");
  expect_refused(std::string(kArray) + "SLURM_ARRAY_TASK_ID=0", "is none of 3 tasks");
  expect_refused(std::string(kArray) + "SLURM_ARRAY_TASK_ID=9", "is none of 3 tasks");
  expect_refused(std::string(kArray) + "SLURM_ARRAY_TASK_ID=2 SLURM_ARRAY_TASK_STEP=2",
                 "is none of 3 tasks");
  expect_refused(std::string(kArray) + "SLURM_ARRAY_TASK_ID=2 SLURM_ARRAY_TASK_STEP=0",
                 "is none of 3 tasks");
  expect_refused(std::string(kArray) +
                     "SLURM_ARRAY_TASK_ID=2 JOB_COMPLETION_INDEX=0 "
                     "JOB_COMPLETIONS=2",
                 "both Slurm and Kubernetes say which task this is");
}

}  // namespace
}  // namespace qkscope
