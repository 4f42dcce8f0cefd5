#pragma once

#include "base/core/error.h"

namespace qkscope {

// Returns action(), or `otherwise` if action() throws a bad-input error. Other errors, such as a
// failed read, are rethrown: ignoring them would change results.
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
