// Turns exceptions of the standard library and of other libraries into Error at the boundary of the
// public API.
#pragma once

#include <utility>

#include "qkscope/error.h"

namespace qkscope {

// Rethrows the exception being handled as an Error. Must be called inside a catch block.
[[noreturn]] void rethrow_as_error();

// Runs the body of a public function; every exception that leaves it is an Error.
template <typename Body>
decltype(auto) translate_exceptions(Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (...) {
    rethrow_as_error();
  }
}

}  // namespace qkscope
