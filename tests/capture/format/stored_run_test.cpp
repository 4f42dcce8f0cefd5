#include "capture/format/stored_run.h"

#include <barrier>
#include <set>
#include <thread>

#include <gtest/gtest.h>

#include "capture/folders_in_memory.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

class StoredRuns : private FoldersInMemory, public testing::Test {
 protected:
  StoredRuns() {
    manifest_.identity = Json::object();
    manifest_.head_dim = manifest_.row_group_size = 1;
    manifest_.groups.push_back({.heads = {0}, .window = {}, .rope = "", .rope_inv_freq = ""});
  }
  static StoredRun open(const TemporaryFolder& folder) {
    return {*parse_store_uri("file://" + folder.file("store")), StoredRun::kCapture};
  }

  Manifest manifest_;
};

// A run that begins between two requests of another task is joined and not replaced.
TEST_F(StoredRuns, TasksThatStartAtTheSameTimeJoinOneRun) {
  constexpr int kTasks = 8, kRounds = 20;
  for (int round = 0; round < kRounds; ++round) {
    const TemporaryFolder folder;
    std::vector<std::string> roots(kTasks);
    std::barrier start(kTasks);
    std::vector<std::thread> tasks;
    for (int i = 0; i < kTasks; ++i)
      tasks.emplace_back([&, i] {
        auto run = open(folder);
        start.arrive_and_wait();
        run.begin_or_join_run(manifest_, {i, kTasks}, false);
        roots[static_cast<std::size_t>(i)] = run.local_root();
      });
    for (auto& task : tasks) task.join();
    EXPECT_EQ(std::set(roots.begin(), roots.end()).size(), 1u) << "round " << round;
  }
}

TEST_F(StoredRuns, OnlyTheTaskThatBeganARunRemovesIt) {
  const TemporaryFolder folder;
  auto first = open(folder), second = open(folder), third = open(folder);
  first.begin_or_join_run(manifest_, {}, false);
  second.begin_or_join_run(manifest_, {}, false);
  second.remove_unused_run({});
  EXPECT_TRUE(third.join_active_run());
  first.remove_unused_run({});
  EXPECT_FALSE(third.join_active_run());
}

}  // namespace
}  // namespace qkscope
