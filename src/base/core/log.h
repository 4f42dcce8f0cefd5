// Formatted log messages for the callback of qkscope/experimental/log.h.
#pragma once

#include <string>
#include <utility>

#include <fmt/core.h>

#include "qkscope/experimental/log.h"

namespace qkscope::log {

bool is_enabled(LogLevel level);  // whether a callback receives this level
void write(LogLevel level, const std::string& message);

template <typename... Args>
void write(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (is_enabled(level)) write(level, fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  write(LogLevel::debug, format, std::forward<Args>(args)...);
}
template <typename... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  write(LogLevel::info, format, std::forward<Args>(args)...);
}
template <typename... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  write(LogLevel::warning, format, std::forward<Args>(args)...);
}
template <typename... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  write(LogLevel::error, format, std::forward<Args>(args)...);
}

}  // namespace qkscope::log
