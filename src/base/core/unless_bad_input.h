#pragma once

#include "base/core/error.h"

namespace qkscope {

// Returns action(), or `otherwise` if it throws a bad-input error. Rethrows failures of the
// machine, which say nothing about the input and would change results if they were ignored.
template <typename Action, typename Value>
Value unless_bad_input(const Action& action, Value otherwise) {
  try {
    return action();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::bad_input) throw;
    return otherwise;
  }
}

}  // namespace qkscope
