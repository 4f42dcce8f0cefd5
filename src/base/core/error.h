// How errors are made: formatted messages of the one exception type (qkscope/error.h).
#pragma once

#include <string>
#include <utility>

#include <fmt/core.h>

#include "qkscope/error.h"

namespace qkscope {

template <typename... Args>
[[noreturn]] void bad_input(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorKind::bad_input, fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
[[noreturn]] void failure(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorKind::failure, fmt::format(format, std::forward<Args>(args)...));
}

// A failed system call on `path`: says the operation and the system's reason. A path that does not
// exist or may not be read is a user error (bad input), anything else is a failure.
[[noreturn]] void system_error(const std::string& operation, const std::string& path, int error);

// For our own bugs only, never for what a user can cause.
#define QKSCOPE_ASSERT(condition)                                                  \
  do {                                                                             \
    if (!(condition)) ::qkscope::assertion_failed(#condition, __FILE__, __LINE__); \
  } while (false)
[[noreturn]] void assertion_failed(const char* condition, const char* file, int line);

}  // namespace qkscope
