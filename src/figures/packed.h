// Arrays of numbers as base64, the way the report's page unpacks them.
#pragma once

#include <bit>
#include <span>
#include <string>
#include <vector>

#include "core/base64.h"

namespace qkscope {

static_assert(std::endian::native == std::endian::little, "the page reads little-endian numbers");

template <typename T>
std::string packed(const std::vector<T>& values) {
  return base64(std::as_bytes(std::span(values)));
}

}  // namespace qkscope
