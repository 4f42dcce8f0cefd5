#include "base/io/child_process.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/core/error.h"
#include "base/io/output_file.h"

namespace qkscope {
namespace {

// Returns an anonymous file for a child's output. A pipe would block the child once it is full.
FileDescriptor make_memory_file() {
  FileDescriptor file(::memfd_create("output", MFD_CLOEXEC));
  if (!file.is_open()) throw_failure("a file in memory cannot be made: {}", std::strerror(errno));
  return file;
}

std::string read_to_end(const FileDescriptor& file) {
  std::string all;
  char buffer[4096];
  while (true) {
    const auto at = static_cast<::off_t>(all.size());
    const auto count = ::pread(file.fd(), buffer, sizeof buffer, at);
    if (count <= 0) return all;
    all.append(buffer, static_cast<std::size_t>(count));
  }
}

int wait_for_child(::pid_t child, const std::string& program) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0)
    if (errno != EINTR) throw_failure("waiting for {}: {}", program, std::strerror(errno));
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

ProcessResult run_process(const std::vector<std::string>& command, const std::string& folder) {
  const auto out = make_memory_file();
  const auto err = make_memory_file();
  ::posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, out.fd(), STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, err.fd(), STDERR_FILENO);
  if (!folder.empty()) ::posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
  auto words = command;
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::pid_t child = 0;
  const int error = ::posix_spawnp(&child, argv.front(), &actions, nullptr, argv.data(), ::environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error == ENOENT) return {};
  if (error != 0) throw_failure("{} cannot be started: {}", command.front(), std::strerror(error));
  const int status = wait_for_child(child, command.front());
  return {.found = true, .status = status, .out = read_to_end(out), .err = read_to_end(err)};
}

}  // namespace qkscope
