// Options of commands that read a sweep: sweep, submit, status.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "qkscope/experimental/study.h"

namespace qkscope::cli {

struct SweepOptionsOfFile {
  SweepSource source;
  std::string results = "results";
  std::string devices;
  std::string dtype;
  std::string device_memory;

  // Which sweep: FILE, --out, --set, --every, --log, --data.
  void add_source_to(CLI::App& command);
  // How its models run.
  void add_compute_to(CLI::App& command);

  Sweep read();
  // The same options for another process that runs in the same folder.
  std::vector<std::string> arguments() const;
};

}  // namespace qkscope::cli
