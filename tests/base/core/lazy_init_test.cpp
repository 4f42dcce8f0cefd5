#include "base/core/lazy_init.h"

#include <semaphore>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sanitized.h"

namespace qkscope {
namespace {

TEST(LazyInitLockFree, ReturnsTheSameObjectForEveryCall) {
  int calls = 0;
  const auto get = [&]() -> const std::string& {
    return lazy_init_lock_free([&] {
      ++calls;
      return std::string("table");
    });
  };
  EXPECT_EQ(&get(), &get());
  EXPECT_EQ(get(), "table");
  EXPECT_EQ(calls, 1);
}

TEST(LazyInitLockFree, AChildForkedDuringInitialisationDoesNotBlock) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's own locks may stay locked in the child";
  static std::atomic<bool> slow = true;
  static std::binary_semaphore begun{0};
  static std::binary_semaphore go_on{0};
  const auto get = [] {
    return lazy_init_lock_free([] {
      if (slow) {
        begun.release();
        go_on.acquire();
      }
      return 7;
    });
  };
  std::thread first(get);
  begun.acquire();
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    slow = false;
    _exit(get());
  }
  int status = 0;
  waitpid(child, &status, 0);
  go_on.release();
  first.join();
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

}  // namespace
}  // namespace qkscope
