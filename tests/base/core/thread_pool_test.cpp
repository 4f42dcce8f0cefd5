#include "base/core/thread_pool.h"

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sanitized.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

TEST(ThreadPool, CallsEachIndexOnce) {
  for (const int threads : {1, 2, 5}) {
    set_thread_count(threads);
    EXPECT_EQ(thread_count(), threads);
    std::vector<std::atomic<int>> seen(1000);
    for (int repeat = 0; repeat < 20; ++repeat)
      parallel_for(1000, [&](std::int64_t i) { ++seen[static_cast<std::size_t>(i)]; });
    for (const auto& count : seen) EXPECT_EQ(count, 20);
  }
  set_thread_count(0);
}

// Workers may spin, sleep or wake up after the job has ended.
TEST(ThreadPool, ManyShortCallsLoseNoIndex) {
  set_thread_count(4);
  for (int call = 0; call < 3000; ++call) {
    std::atomic<std::int64_t> sum = 0;
    const std::int64_t count = call % 7 + 1;
    parallel_for(count, [&](std::int64_t i) { sum += i + 1; });
    ASSERT_EQ(sum, count * (count + 1) / 2);
    if (call % 500 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  set_thread_count(0);
}

TEST(ThreadPool, NestedCallsRunInline) {
  std::atomic<int> total{0};
  parallel_for(8, [&](std::int64_t) { parallel_for(8, [&](std::int64_t) { ++total; }); });
  EXPECT_EQ(total, 64);
}

TEST(ThreadPool, TwoCallersTakeTurns) {
  const auto sums = [](std::int64_t& total) {
    for (int call = 0; call < 200; ++call) {
      std::atomic<std::int64_t> sum = 0;
      parallel_for(100, [&](std::int64_t i) { sum += i; });
      total += sum;
    }
  };
  std::int64_t here = 0;
  std::int64_t there = 0;
  std::thread other([&] { sums(there); });
  sums(here);
  other.join();
  EXPECT_EQ(here, 200 * 4950);
  EXPECT_EQ(there, 200 * 4950);
}

TEST(ThreadPool, ExceptionsReachTheCallerAndThePoolSurvives) {
  EXPECT_THROW(parallel_for(100,
                            [](std::int64_t i) {
                              if (i == 37) throw std::runtime_error("37");
                            }),
               std::runtime_error);
  std::atomic<int> total{0};
  parallel_for(10, [&](std::int64_t) { ++total; });
  EXPECT_EQ(total, 10);
}

// Runs in a child process because the limit cannot be raised again. RLIMIT_AS instead of
// RLIMIT_NPROC, which does not apply to root.
TEST(CgroupCores, TakesTheSmallestQuotaOfTheGroupAndItsParents) {
  const TemporaryFolder root;
  std::filesystem::create_directories(root.file("slice/job"));
  const auto set = [&](const std::string& group, const std::string& limit) {
    std::ofstream(root.path() + group + "/cpu.max") << limit << "\n";
  };
  const auto cores = [&](const std::string& membership) {
    return cgroup_cpu_limit(membership, root.path());
  };
  EXPECT_EQ(cores("0::/slice/job\n"), 0);
  set("/slice/job", "max 100000");
  EXPECT_EQ(cores("0::/slice/job\n"), 0);
  set("/slice", "350000 100000");
  EXPECT_EQ(cores("12:cpu:/old\n0::/slice/job\n"), 4);
  set("/slice/job", "50000 100000");
  EXPECT_EQ(cores("0::/slice/job\n"), 1);
  set("", "200000 100000");
  EXPECT_EQ(cores("0::/\n"), 2);
  for (const char* damaged : {"", "0::", "0::x", "1:cpu:/", "garbage"})
    EXPECT_LE(cores(damaged), 2) << damaged;
}

TEST(ThreadPool, LimitsTheNumberOfThreads) {
  set_thread_count(100'000);
  EXPECT_LT(thread_count(), 10'000);
  set_thread_count(0);
}

TEST(ThreadPool, WorksWithFewerThreadsThanRequested) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer itself needs more memory than that";
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // ends the test if the pool hangs
    const rlimit limit{std::size_t{400} << 20, std::size_t{400} << 20};
    setrlimit(RLIMIT_AS, &limit);
    set_thread_count(4096);
    std::atomic<int> total{0};
    parallel_for(1000, [&](std::int64_t) { ++total; });
    _exit(total == 1000 && thread_count() < 64 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

}  // namespace
}  // namespace qkscope
