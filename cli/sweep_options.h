// Options of commands that read a sweep file: sweep, submit.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "cli/run_options.h"
#include "qkscope/experimental/study.h"

namespace qkscope::cli {

struct SweepFileArguments {
  SweepSource source;
  ComputeArguments compute;  // for every run
  std::string results = "results";

  void add_to(CLI::App& command);
  Sweep read();
  // Returns the same options for another process that runs in the same folder.
  std::vector<std::string> arguments() const;
};

}  // namespace qkscope::cli
