// Kills a program at a named point: right after a given file operation. file_recorder.cpp, loaded
// with LD_PRELOAD, sends the signal, so that a test hits the same point on every machine.
#pragma once

#include <csignal>
#include <string>
#include <thread>

#include <fmt/format.h>

#include "capture_fixture.h"

namespace qkscope {

// The `count`-th operation `what` (letters of FileOperation) on a path that ends in `path`.
struct KillPoint {
  char what;
  std::string path;
  int count = 1;
};

// Runs a command line with the recorder and the given environment variables.
inline Outcome run_recorded(const std::string& command, const std::string& variables) {
  return run_program(fmt::format("LD_PRELOAD={}/../tests/file_recorder.so {} {}", program_folder(),
                                 variables, command));
}

// For each point: kills the command there, runs it again to the end in the same folder, and calls
// `check`, which then removes the output.
template <typename Check>
void kill_and_resume(const std::string& command, const std::string& folder,
                     std::initializer_list<KillPoint> points, const Check& check) {
  for (const auto& point : points) {
    const auto name = fmt::format("{} {} {}", point.what, point.path, point.count);
    const auto killed = run_recorded(
        command, fmt::format("QKSCOPE_RECORD_BELOW={} QKSCOPE_KILL_AT='{}'", folder, name));
    ASSERT_EQ(killed.status, 128 + SIGKILL) << "the run never reached: " << name << killed.err;
    const auto resumed = run_program(command);
    ASSERT_EQ(resumed.status, 0) << name << ": " << resumed.err;
    check();
    if (testing::Test::HasFailure()) FAIL() << "after a kill at: " << name;
  }
}

// Waits up to 30 s for a file of a program that runs in the background.
inline void wait_for_file(const std::string& path) {
  for (int i = 0; i < 3000 && !std::filesystem::exists(path); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

}  // namespace qkscope
