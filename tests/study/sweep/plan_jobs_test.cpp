// plan_jobs(): the jobs of a sweep and of a capture.
#include <gmock/gmock.h>

#include "error_message.h"
#include "qkscope/experimental/cluster.h"
#include "study/sweep/sweep_fixture.h"

namespace qkscope {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class PlannedJobs : public SweepFixture {
 protected:
  ClusterPlan plan(const SlurmOptions& slurm, const std::string& out = "out") const {
    return plan_jobs(
        Sweep::read({.file = file("sweep.yaml"), .overrides = {}, .data_folder = ""}, file(out)),
        slurm, {.program = "/bin/qkscope", .arguments = {"sweep", "s.yaml"}, .folder = "/home"});
  }
  static std::vector<std::string> names(const ClusterPlan& plan) {
    std::vector<std::string> all;
    for (const auto& job : plan.jobs) all.push_back(job.name);
    return all;
  }
};

TEST_F(PlannedJobs, CaptureMergeAnalyseThenTables) {
  const auto all = plan({.shards = 8});
  EXPECT_THAT(names(all), ElementsAre("first.capture", "first.merge", "first.analyse",
                                      "second.capture", "second.merge", "second.analyse",
                                      "third.capture", "third.merge", "third.analyse", "tables"));
  EXPECT_EQ(all.jobs[0].tasks, 8);
  EXPECT_GT(all.jobs[0].flop, 0);
  EXPECT_GT(all.jobs[0].bytes, 0);
  EXPECT_THAT(all.jobs[0].script,
              HasSubstr("/bin/qkscope sweep s.yaml --only first --part capture --shard "
                        "\"$SLURM_ARRAY_TASK_ID/8\" &\n"));
  EXPECT_THAT(all.jobs[1].after, ElementsAre(0));
  EXPECT_THAT(all.jobs[1].script, HasSubstr("--only first --part merge --shards 8 &\n"));
  EXPECT_THAT(all.jobs[2].after, ElementsAre(1));
  EXPECT_THAT(all.jobs[9].after, ElementsAre(2, 5, 8));
  EXPECT_THAT(all.jobs[9].script, HasSubstr("sweep s.yaml --part tables &\n"));
}

TEST_F(PlannedJobs, FinishedRunsHaveNoJobs) {
  ASSERT_EQ(sweep("out", "--quiet --only second").status, 0);
  EXPECT_THAT(names(plan({})),
              ElementsAre("first.capture", "first.merge", "first.analyse", "third.capture",
                          "third.merge", "third.analyse", "tables"));
}

TEST_F(PlannedJobs, AnotherNumberOfShardsIsRefused) {
  ASSERT_EQ(sweep("out", "--quiet --only first --part capture --shard 0/8").status, 0);
  EXPECT_THAT(bad_input_message([&] { plan({.shards = 4}); }),
              HasSubstr("run first: its texts were begun in 8 shards, not in 4; submit with "
                        "--shards 8"));
  EXPECT_EQ(plan({.shards = 8}).jobs.size(), 10u);
}

TEST_F(PlannedJobs, ACaptureOfAnotherConfigurationIsRefused) {
  ASSERT_EQ(sweep("out", "--quiet --only first --set capture.min_bucket_size=32").status, 0);
  EXPECT_THAT(bad_input_message([&] { plan({}); }),
              HasSubstr("holds a capture with another configuration"));
}

TEST_F(PlannedJobs, OptionsInvalidOnASbatchLineAreRefused) {
  const auto refused = [&](const SlurmOptions& slurm) {
    return bad_input_message([&] { plan(slurm); });
  };
  EXPECT_THAT(refused({.shards = 0}), HasSubstr("--shards: found 0, expected 1 to 10000"));
  EXPECT_THAT(refused({.partition = "a b"}),
              HasSubstr("--partition: found \"a b\", expected the name"));
  EXPECT_THAT(refused({.account = "x\n#SBATCH --uid=0"}), HasSubstr("--account"));
  EXPECT_THAT(refused({.gpus = "many"}), HasSubstr("--gpus: found \"many\", expected a number"));
  EXPECT_THAT(refused({.time = "soon"}), HasSubstr("--time: found \"soon\", expected minutes"));
  EXPECT_THAT(refused({.time = "0"}), HasSubstr("--time"));
  EXPECT_THAT(refused({.memory = "64 GB"}), HasSubstr("--memory: found \"64 GB\""));
  EXPECT_THAT(refused({.environment = {"a\nb"}}), HasSubstr("--environment"));
}

TEST_F(PlannedJobs, TheSectionSlurmIsRead) {
  write_sweep(
      "slurm: {shards: 8, partition: gpu, time: 1-0, gpus: 2, environment: [module load cuda]}\n");
  const auto sweep =
      Sweep::read({.file = file("sweep.yaml"), .overrides = {}, .data_folder = ""}, file("out"));
  EXPECT_EQ(sweep.slurm().shards, 8);
  EXPECT_EQ(sweep.slurm().partition, "gpu");
  EXPECT_EQ(sweep.slurm().time, "1-0");
  EXPECT_EQ(sweep.slurm().gpus, "2");
  EXPECT_THAT(sweep.slurm().environment, ElementsAre("module load cuda"));
}

TEST_F(PlannedJobs, ErrorsOfTheSectionNameKeyAndLine) {
  const auto refused = [&](const std::string& section) {
    write_sweep("slurm:\n  " + section + "\n");
    return bad_input_message([&] { plan({}); });
  };
  EXPECT_THAT(refused("partitions: gpu"), HasSubstr("slurm.partitions"));
  EXPECT_THAT(refused("partitions: gpu"), HasSubstr("partition"));
  EXPECT_THAT(refused("time: soon"), HasSubstr("sweep.yaml:16: slurm.time"));
  EXPECT_THAT(refused("environment: module load"), HasSubstr("expected a list of lines of shell"));
}

TEST_F(PlannedJobs, PathsWithSlurmPatternsAreRefused) {
  EXPECT_THAT(bad_input_message([&] { plan({}, "100%"); }), HasSubstr("expected a path without"));
}

}  // namespace
}  // namespace qkscope
