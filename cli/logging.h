// What the library and the programs say goes to standard error, as do progress lines; results go to
// standard output.
#pragma once

#include <string>
#include <utility>

#include <fmt/core.h>

#include "qkscope/experimental/log.h"

namespace qkscope::cli {

// quiet: errors only, no progress; normal: also warnings and information; verbose: also debug
// lines.
enum class Verbosity { quiet, normal, verbose };

void set_up_logging(Verbosity verbosity);

void say(LogLevel level, const std::string& message);

template <typename... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  say(LogLevel::info, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  say(LogLevel::warning, fmt::format(format, std::forward<Args>(args)...));
}
}  // namespace qkscope::cli
