// Runs a program of the project as a user would, and keeps what it printed.
#pragma once

#include <cstdlib>
#include <string>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/io/mapped_file.h"
#include "paths.h"
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
  const auto line = "PATH=\"" + program_folder() + ":$PATH\"; " + command;
  const auto wrapped =
      "( " + line + " ) >" + folder.file("out") + " 2>" + folder.file("err") + " </dev/null";
  const int status = std::system(wrapped.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          std::string(MappedFile(folder.file("out")).text()),
          std::string(MappedFile(folder.file("err")).text())};
}

// Starts one program and leaves it running: the shell is replaced by it, so the number is the
// program's. What it prints goes to the file `output`.
inline pid_t start_program(const std::string& command, const std::string& output) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  const int out = ::open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  ::dup2(out, 1);
  ::dup2(out, 2);
  const auto line = "PATH=\"" + program_folder() + ":$PATH\"; exec " + command;
  ::execl("/bin/sh", "sh", "-c", line.c_str(), static_cast<char*>(nullptr));
  ::_exit(127);
}

// The status as waitpid gives it.
inline int wait_for_program(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

}  // namespace qkscope
