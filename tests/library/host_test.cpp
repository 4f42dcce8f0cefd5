// Effects of the library on its process: no output, and fork() works.
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <qkscope/experimental/log.h>
#include <qkscope/experimental/threads.h>
#include <qkscope/forward.h>
#include <qkscope/model.h>
#include <sys/wait.h>
#include <unistd.h>

#include "paths.h"

namespace qkscope {
namespace {

std::vector<float> logits_of(const Model& model) {
  Batch batch;
  batch.add(std::vector<std::int32_t>{1, 2, 3, 4, 5, 6, 7, 8});
  Collector logits(match_hooks(model.config(), std::vector<std::string>{"logits"}), {});
  model.run(batch, logits);
  const auto& kept = logits.kept().front().activation;
  return {kept.data<float>(), kept.data<float>() + kept.size()};
}

Model demo() {
  return Model::load(source_path("share/demo/checkpoints/LC2-1200"), {.device = "cpu"});
}

TEST(Host, ForkedChildrenCanCompute) {
  set_thread_count(4);
  const auto model = demo();
  const auto expected = logits_of(model);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // a pool without its threads would wait for ever
    const bool same = logits_of(model) == expected && thread_count() == 4;
    _exit(same ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(logits_of(model), expected);  // the parent's threads are still there
}

TEST(Host, ForkDuringComputationIsSafe) {
  set_thread_count(2);
  const auto model = demo();
  const auto expected = logits_of(model);
  std::atomic<bool> stop = false;
  std::thread busy([&] {
    while (!stop) logits_of(model);
  });
  for (int i = 0; i < 10; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      _exit(logits_of(model) == expected ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  stop = true;
  busy.join();
}

TEST(Host, NothingIsPrintedByDefault) {
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  logits_of(demo());
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
}

TEST(Host, LogMessagesGoToTheCallback) {
  std::vector<std::string> heard;
  set_log_callback([&](LogLevel, std::string_view message) { heard.emplace_back(message); },
                   LogLevel::debug);
  set_log_callback(nullptr);
  logits_of(demo());
  EXPECT_TRUE(heard.empty());
}

}  // namespace
}  // namespace qkscope
