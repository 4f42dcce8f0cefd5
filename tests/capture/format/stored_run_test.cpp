#include "capture/format/stored_run.h"

#include <barrier>
#include <set>
#include <thread>

#include <gtest/gtest.h>

#include "capture/folders_in_memory.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

// A run that begins between two requests of another task is joined and not replaced.
TEST(StoredRun, TasksThatStartAtTheSameTimeJoinOneRun) {
  const FoldersInMemory memory;
  constexpr int kTasks = 8, kRounds = 20;
  Manifest manifest;
  manifest.identity = Json::object();
  manifest.head_dim = manifest.row_group_size = 1;
  manifest.groups.push_back({.heads = {0}, .window = {}, .rope = "", .rope_inv_freq = ""});
  for (int round = 0; round < kRounds; ++round) {
    const TemporaryFolder folder;
    const auto address = parse_store_address("file://" + folder.file("store"));
    std::vector<std::string> roots(kTasks);
    std::barrier start(kTasks);
    std::vector<std::thread> tasks;
    for (int i = 0; i < kTasks; ++i)
      tasks.emplace_back([&, i] {
        StoredRun run(*address, StoredRun::kCapture);
        start.arrive_and_wait();
        run.begin_or_join_run(manifest, {i, kTasks}, false);
        roots[static_cast<std::size_t>(i)] = run.local_root();
      });
    for (auto& task : tasks) task.join();
    EXPECT_EQ(std::set(roots.begin(), roots.end()).size(), 1u) << "round " << round;
  }
}

}  // namespace
}  // namespace qkscope
