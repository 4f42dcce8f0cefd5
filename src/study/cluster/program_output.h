// Runs a program and keeps what it prints. Without a shell, so that no name is ever read as a
// command.
#pragma once

#include <string>
#include <vector>

namespace qkscope {

struct ProgramOutput {
  bool found = false;  // on the PATH
  int status = 0;      // 128 + signal where it was killed by one
  std::string out;
  std::string err;
};

ProgramOutput run_program(const std::vector<std::string>& command);

}  // namespace qkscope
