// The only exception type that public functions throw. A message names the file or option, the
// value found, the value expected, and how to fix the problem.
#pragma once

#include <stdexcept>
#include <string>

#include "qkscope/version.h"

namespace qkscope {

enum class ErrorKind {
  bad_input,  // a file, option or data of the user is wrong: exit code 2
  failure,    // the system failed (disk full, out of memory): exit code 1
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
