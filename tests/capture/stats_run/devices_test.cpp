// Statistics computed by several devices equal those of one device bit for bit.
#include <atomic>
#include <cmath>

#include "collect_fixture.h"
#include "qkscope/forward.h"
#include "qkscope/statistics.h"

namespace qkscope {
namespace {

class StatsDevices : public CollectFixture {
 protected:
  StatsPlan plan(const std::string& root, const std::vector<std::string>& devices) const {
    return make_stats_plan(read_stats_config(file("run.yaml"), {"output.data_root=" + file(root)}),
                           {.device = "", .devices = devices, .dtype = {}, .batch_tokens = 200});
  }

  void run(const std::string& root, const std::vector<std::string>& devices) const {
    const auto result = run_stats(plan(root, devices), {.shard = {}, .quiet = true});
    EXPECT_EQ(result.outcome, CaptureResult::Outcome::finished);
    EXPECT_EQ(result.examples, 40);
  }
};

TEST_F(StatsDevices, SeveralDevicesGiveTheBytesOfOneDevice) {
  write_stats_config("stats:\n  groups: [A, B, C]\n  buckets: 4\n");
  run("alone", {});
  for (const std::size_t count : {1u, 2u, 4u}) {
    const auto root = fmt::format("of{}", count);
    run(root, std::vector<std::string>(count, "cpu"));
    expect_same(root, contents("alone"));
  }
}

TEST_F(StatsDevices, StoppedRunResumesWithAnotherNumberOfDevices) {
  run("alone", {});
  std::atomic<bool> stop = false;
  const auto stop_at = [&](std::int64_t examples) {
    stop = false;
    return StatsOptions{.shard = {},
                        .quiet = true,
                        .stop = &stop,
                        .on_batch = [&stop, examples](const StatsProgress& progress) {
                          if (progress.examples >= examples) stop = true;
                        }};
  };
  const auto first = run_stats(plan("out", {"cpu", "cpu", "cpu"}), stop_at(9));
  EXPECT_EQ(first.outcome, CaptureResult::Outcome::interrupted);
  EXPECT_EQ(first.examples, 9);
  run_stats(plan("out", {"cpu"}), stop_at(21));
  run("out", {"cpu", "cpu"});
  expect_same("out", contents("alone"));
}

TEST_F(StatsDevices, DevicesOptionAcceptsListsAndAll) {
  ASSERT_EQ(stats("one").status, 0);
  const auto two = stats("two", "--device cpu,cpu");
  ASSERT_EQ(two.status, 0) << two.err;
  expect_same("two", contents("one"));
  EXPECT_EQ(stats("three", "--device cpu,tpu").status, 2);
}

TEST_F(StatsDevices, OneGpuListedTwiceGivesTheBytesOfOneGpu) {
  if (cuda_device_count() == 0) GTEST_SKIP() << why_no_cuda();
  run("one", {"cuda:0"});
  run("two", {"cuda:0", "cuda:0"});
  expect_same("two", contents("one"));
}

// Compares groups B and C of a GPU, including the sums that its host adds, with the CPU.
TEST_F(StatsDevices, GpuMatchesTheCpu) {
  if (cuda_device_count() == 0) GTEST_SKIP() << why_no_cuda();
  ASSERT_EQ(stats("out").status, 0);
  const auto options = "--exact-rows 5 --set stats.kl=[fp8,fp8_exported,int8_token] " +
                       exported_to_next("out") + " --device ";
  for (const auto* device : {"cpu", "cuda"}) {
    const auto run = stats(device, options + device);
    ASSERT_EQ(run.status, 0) << run.err;
  }
  const auto cpu = read_statistics(file("cpu")).attention;
  const auto gpu = read_statistics(file("cuda")).attention;
  ASSERT_EQ(gpu.columns, cpu.columns);
  ASSERT_EQ(gpu.document_columns, cpu.document_columns);
  // q and k differ in their last bits, so in single rows a key count or a quantized key may differ
  // by one step.
  const auto compare = [](const std::vector<double>& found, const std::vector<double>& expected,
                          const std::vector<std::string>& columns) {
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      const auto& name = columns[i % columns.size()];
      if (name == "mean_qk_area") continue;  // a GPU computes it only for documents that run alone
      const bool steps = name.starts_with("keys_") || name.starts_with("kl_") ||
                         name.starts_with("kept_") || name.starts_with("top_");
      EXPECT_NEAR(found[i], expected[i],
                  (steps ? 2e-2 : 1e-4) * std::abs(expected[i]) + (steps ? 1e-2 : 1e-4))
          << name;
    }
  };
  compare(gpu.sum, cpu.sum, cpu.columns);
  compare(gpu.document_sum, cpu.document_sum, cpu.document_columns);
}

}  // namespace
}  // namespace qkscope
