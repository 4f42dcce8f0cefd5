#include "cli/logging.h"

#include <cstdio>

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include "qkscope/log.h"

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

}  // namespace

void set_up_logging(Verbosity verbosity) {
  auto logger = std::make_shared<spdlog::logger>(
      "qkscope", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  logger->set_pattern("%^%l%$: %v");
  logger->set_level(spdlog::level::trace);
  set_log_callback(
      [logger](LogLevel level, std::string_view message) {
        logger->log(spdlog_level(level), message);
      },
      least_level(verbosity));
  set_progress_output(verbosity == Verbosity::quiet ? nullptr : stderr);
}

}  // namespace qkscope::cli
