// The edge of the library: whatever a public function lets out is an Error. Exceptions of the
// standard library and of libraries below us become one here, and nowhere else.
#pragma once

#include <utility>

#include "qkscope/error.h"

namespace qkscope {

// Throws the exception being handled as an Error; called inside a catch block.
[[noreturn]] void rethrow_as_error();

// Runs the body of a public function.
template <typename Body>
decltype(auto) translate_exceptions(Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (...) {
    rethrow_as_error();
  }
}

}  // namespace qkscope
