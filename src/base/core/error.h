// Functions that throw Error (qkscope/error.h) with a formatted message, and the translation of
// other exceptions into Error at the boundary of the public API.
#pragma once

#include <string>
#include <utility>

#include <fmt/core.h>

#include "qkscope/error.h"

namespace qkscope {

// Throws an Error of kind bad_input: a file, option or argument of the user is wrong.
template <typename... Args>
[[noreturn]] void reject(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorKind::bad_input, fmt::format(format, std::forward<Args>(args)...));
}

// Throws an Error of kind failure: the system, a server or the code is at fault, not the input.
template <typename... Args>
[[noreturn]] void throw_failure(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorKind::failure, fmt::format(format, std::forward<Args>(args)...));
}

// Returns ErrorKind::bad_input for an errno that a wrong path or missing permission causes (ENOENT,
// EACCES ...) and ErrorKind::failure for every other errno: the same command may succeed later.
ErrorKind error_kind_from_errno(int error);

// Throws an Error for a system call on `path` that failed with the errno `error`.
[[noreturn]] void throw_system_error(const std::string& operation, const std::string& path,
                                     int error);

// Assertion for internal errors (bugs) only, never for conditions that a user can cause.
#define QKSCOPE_ASSERT(condition)                                                  \
  do {                                                                             \
    if (!(condition)) ::qkscope::assertion_failed(#condition, __FILE__, __LINE__); \
  } while (false)
[[noreturn]] void assertion_failed(const char* condition, const char* file, int line);

// Rethrows the exception being handled as an Error. Must be called inside a catch block.
[[noreturn]] void rethrow_as_error();

// Runs the body of a public function and converts any exception to an Error.
template <typename Body>
decltype(auto) translate_exceptions(Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (...) {
    rethrow_as_error();
  }
}

// Returns action(), or `otherwise` if action() throws a bad-input error. Rethrows all other errors:
// they do not say whether the input is valid, and ignoring them would change results.
template <typename Action, typename Value>
Value value_or_on_bad_input(const Action& action, Value otherwise) {
  try {
    return action();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::bad_input) throw;
    return otherwise;
  }
}

}  // namespace qkscope
