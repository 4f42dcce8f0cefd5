#include "base/core/log.h"

#include <atomic>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "qkscope/experimental/text.h"

namespace qkscope {
namespace {

TEST(Log, OnlyMessagesOfTheLevelReachTheCallback) {
  std::vector<std::string> heard;
  set_log_callback(
      [&](LogLevel level, std::string_view message) {
        heard.push_back(std::to_string(static_cast<int>(level)) + " " + std::string(message));
      },
      LogLevel::warning);
  log::debug("not heard");
  log::info("nor this");
  log::warn("{} rows", 3);
  log::error("gone");
  set_log_callback(nullptr);
  log::error("nobody listens");
  EXPECT_EQ(heard, (std::vector<std::string>{"2 3 rows", "3 gone"}));
}

TEST(Log, ExceptionsOfTheCallbackAreIgnored) {
  set_log_callback([](LogLevel, std::string_view) { throw std::runtime_error("listener"); });
  EXPECT_NO_THROW(log::error("said"));
  set_log_callback(nullptr);
}

// The listener is read without a lock: a fork could leave a lock held in the child.
TEST(Log, AForkedChildOfABusyProcessCanLog) {
  set_log_callback([](LogLevel, std::string_view) {}, LogLevel::warning);
  std::atomic<bool> stop = false;
  std::vector<std::thread> busy;
  for (int i = 0; i < 3; ++i)
    busy.emplace_back([&] {
      while (!stop) log::is_enabled(LogLevel::error);
    });
  int failed = 0;
  for (int i = 0; i < 200 && failed == 0; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(5);
      _exit(log::is_enabled(LogLevel::error) ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    failed += status != 0;
  }
  stop = true;
  for (auto& thread : busy) thread.join();
  set_log_callback(nullptr);
  EXPECT_EQ(failed, 0);
}

std::string content(std::FILE* file) {
  std::rewind(file);
  std::string text;
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) text += static_cast<char>(c);
  return text;
}

TEST(Progress, PrintsPlainLinesToAFile) {
  std::FILE* file = std::tmpfile();
  {
    Progress progress({.what = "capture", .unit = "examples", .total = 4, .out = file});
    progress.update(4, "10 tokens/s");
  }
  EXPECT_EQ(content(file), "capture: 4/4 examples, 10 tokens/s\n");
  std::fclose(file);
}

TEST(Progress, QuietPrintsNothing) {
  std::FILE* file = std::tmpfile();
  {
    Progress progress({.what = "x", .unit = "y", .quiet = true, .out = file});
    progress.update(3);
  }
  EXPECT_EQ(content(file), "");
  std::fclose(file);
}

TEST(Progress, DurationsUseTwoUnits) {
  EXPECT_EQ(format_duration(42.4), "42 s");
  EXPECT_EQ(format_duration(190), "3 min 10 s");
  EXPECT_EQ(format_duration(7500), "2 h 05 min");
}

}  // namespace
}  // namespace qkscope
