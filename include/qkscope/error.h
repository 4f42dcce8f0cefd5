// The one exception type that leaves the library. A message says what was being done and where,
// what was found, what was expected, and what to do about it.
#pragma once

#include <stdexcept>
#include <string>

#include "qkscope/version.h"

namespace qkscope {

enum class ErrorKind {
  bad_input,  // the user's file, option or data is wrong: exit code 2
  failure,    // the machine failed us (disk full, file vanished): exit code 1
};

class QKSCOPE_API Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}

  ErrorKind kind() const { return kind_; }
  int exit_code() const { return kind_ == ErrorKind::bad_input ? 2 : 1; }

 private:
  ErrorKind kind_;
};

}  // namespace qkscope
