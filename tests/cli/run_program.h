// Runs a program of the project as a user would, and keeps what it printed.
#pragma once

#include <cstdlib>
#include <string>

#include <sys/wait.h>

#include "core/mapped_file.h"
#include "temporary_folder.h"

namespace qkscope {

struct Outcome {
  int status = 0;  // exit code; 128 + signal when killed by one
  std::string out;
  std::string err;
};

// `command` is a line for the shell; the programs of the build come first on its path.
inline Outcome run_program(const std::string& command) {
  const TemporaryFolder folder;
  const auto line = "PATH=\"" QKSCOPE_BIN_DIR ":$PATH\"; " + command;
  const auto wrapped =
      "( " + line + " ) >" + folder.file("out") + " 2>" + folder.file("err") + " </dev/null";
  const int status = std::system(wrapped.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          std::string(MappedFile(folder.file("out")).text()),
          std::string(MappedFile(folder.file("err")).text())};
}

}  // namespace qkscope
