// Functions that throw command-line errors.
#pragma once

#include <string>
#include <utility>

#include <fmt/core.h>

#include "qkscope/error.h"

namespace qkscope::cli {

template <typename... Args>
[[noreturn]] void reject(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorKind::bad_input, fmt::format(format, std::forward<Args>(args)...));
}

// Returns the keys of a map, joined by ", ", for messages.
template <typename Map>
std::string join_keys(const Map& map) {
  std::string text;
  for (const auto& [key, value] : map) text.append(text.empty() ? "" : ", ").append(key);
  return text;
}

}  // namespace qkscope::cli
