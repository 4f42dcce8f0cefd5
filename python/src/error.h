// Helpers that throw errors with formatted messages in the Python bindings.
#pragma once

#include <utility>

#include <fmt/core.h>

#include "qkscope/error.h"

namespace qkscope::python {

template <typename... Args>
[[noreturn]] void reject(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorKind::bad_input, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace qkscope::python
