// Runs programs of the build through a shell and captures their output.
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

// Runs a shell command; the programs of the build are first on its PATH.
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

// Starts one program in the background and returns its process id. The shell is replaced by the
// program. Standard output and error go to the file `output`.
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

// Waits for the program and returns the status of waitpid.
inline int wait_for_program(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

}  // namespace qkscope
