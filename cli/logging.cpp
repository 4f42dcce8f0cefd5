#include "cli/logging.h"

#include <cstdio>
#include <memory>

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include "qkscope/experimental/text.h"

namespace qkscope::cli {
namespace {

LogLevel least_level(Verbosity verbosity) {
  switch (verbosity) {
    case Verbosity::quiet:
      return LogLevel::error;
    case Verbosity::normal:
      return LogLevel::info;
    case Verbosity::verbose:
      break;
  }
  return LogLevel::debug;
}

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return spdlog::level::debug;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::warning:
      return spdlog::level::warn;
    case LogLevel::error:
      break;
  }
  return spdlog::level::err;
}

spdlog::logger& logger() {
  static const auto one = [] {
    auto made = std::make_shared<spdlog::logger>(
        "qkscope", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made->set_pattern("%^%l%$: %v");
    return made;
  }();
  return *one;
}

}  // namespace

void say(LogLevel level, const std::string& message) {
  logger().log(spdlog_level(level), printable(message));
}

void set_up_logging(Verbosity verbosity) {
  const auto least = least_level(verbosity);
  logger().set_level(spdlog_level(least));
  set_log_callback(
      [](LogLevel level, std::string_view message) { say(level, std::string(message)); }, least);
  set_progress_output(verbosity == Verbosity::quiet ? nullptr : stderr);
}

}  // namespace qkscope::cli
