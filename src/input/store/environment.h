// Variables of the environment.
#pragma once

#include <cstdlib>
#include <string>

namespace qkscope {

// "" where it is not set.
inline std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace qkscope
