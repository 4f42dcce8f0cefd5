// Runs another program and collects its output. No shell interprets the arguments.
#pragma once

#include <string>
#include <vector>

namespace qkscope {

struct ProcessResult {
  bool found = false;  // the program exists at its path or on the PATH
  int status = 0;      // exit status; 128 + signal number after a signal
  std::string out;     // standard output
  std::string err;     // standard error
};

// Runs `command` (program, arguments...) in `folder` ("" = the current one) with empty standard
// input and waits for it to exit. Throws an Error of kind failure if it cannot be started.
ProcessResult run_process(const std::vector<std::string>& command, const std::string& folder = "");

}  // namespace qkscope
