#include "core/log.h"

#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace qkscope {
namespace {

TEST(Log, MessagesOfTheWantedLevelsReachTheCallback) {
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

TEST(Log, WhoeverListensCannotStopTheWork) {
  set_log_callback([](LogLevel, std::string_view) { throw std::runtime_error("listener"); });
  EXPECT_NO_THROW(log::error("said"));
  set_log_callback(nullptr);
}

}  // namespace
}  // namespace qkscope
