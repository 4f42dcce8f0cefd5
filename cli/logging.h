// Log lines of the library and the programs go to standard error, as do progress lines; results go
// to standard output.
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

// Writes one line "level: message" to standard error, unless the level is below the verbosity.
void log_line(LogLevel level, const std::string& message);

template <typename... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::info, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::warning, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace qkscope::cli
