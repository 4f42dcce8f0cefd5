// The message of the error that an action ends in, for tests of what a user would read.
#pragma once

#include <string>

#include <gtest/gtest.h>

#include "base/core/error.h"

namespace qkscope {

// Fails the test when the action passes or blames the machine instead of the input.
template <typename Action>
std::string bad_input_message(Action action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_input) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "expected an error, but it passed";
  return "";
}

}  // namespace qkscope
