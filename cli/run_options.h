// Options of commands that run a model over a dataset by a capture's configuration: capture, stats.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "cli/common_options.h"
#include "qkscope/capture.h"

namespace qkscope::cli {

struct RunArguments {
  CommonOptions common;
  std::string config;
  std::vector<std::string> overrides;
  std::string device;
  std::string devices;
  std::string dtype;
  std::string device_memory;
  std::string shard;
  std::string ids;
  std::int64_t batch_tokens = 0;
  std::int64_t limit = 0;
  bool overwrite = false;
  bool dry_run = false;
  bool deterministic = false;
  bool json = false;

  void add_to(CLI::App& command);
  // Only those that say what the run gives and how its model runs.
  void add_run_to(CLI::App& command);
  // The same options for another process that runs in the same folder.
  std::vector<std::string> run_arguments() const;

  ComputeOptions compute() const;
  Shard chosen_shard() const;
  // --limit and --ids stand above the file.
  void apply_to(DatasetConfig& dataset) const;
  // With --json the object is all that goes to standard output.
  bool talks() const { return !common.quiet && !json; }
};

// "cuda:0", "cuda:0 and 3 more".
std::string shown_devices(Device first, std::size_t count);

}  // namespace qkscope::cli
