// The one exception type of the project. A message says what was being done and where, what was
// found, what was expected, and what to do about it.
#pragma once

#include <stdexcept>
#include <string>

#include <fmt/format.h>

namespace qkscope {

enum class ErrorKind {
  bad_input,  // the user's file, option or data is wrong: exit code 2
  failure,    // the machine failed us (disk full, file vanished): exit code 1
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}

  ErrorKind kind() const { return kind_; }
  int exit_code() const { return kind_ == ErrorKind::bad_input ? 2 : 1; }

 private:
  ErrorKind kind_;
};

template <typename... Args>
[[noreturn]] void bad_input(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorKind::bad_input, fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
[[noreturn]] void failure(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorKind::failure, fmt::format(format, std::forward<Args>(args)...));
}

// A failed system call on `path`: says the operation and the system's reason. A path that does not
// exist or may not be read is the user's to mend (bad input), anything else is a failure.
[[noreturn]] void system_error(const std::string& operation, const std::string& path, int error);

// For our own bugs only, never for what a user can cause.
#define QKSCOPE_ASSERT(condition)                                                  \
  do {                                                                             \
    if (!(condition)) ::qkscope::assertion_failed(#condition, __FILE__, __LINE__); \
  } while (false)
[[noreturn]] void assertion_failed(const char* condition, const char* file, int line);

}  // namespace qkscope
