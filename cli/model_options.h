// Options that say which model runs, and how.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "device/backend.h"
#include "io/json.h"
#include "model/loaded_checkpoint.h"

namespace qkscope::cli {

struct ModelOptions {
  std::string name;      // folder or model id
  std::string revision;  // "" is main
  std::string device = "auto";
  std::string dtype = "float32";
  std::string device_memory;           // "8GiB"; "": what is free
  std::vector<std::string> overrides;  // KEY=VALUE

  void add_to(CLI::App& command);
  // The folder on disk; what is missing of a model id is downloaded.
  std::string resolve(bool quiet) const;
  BackendOptions backend_options() const;
  Json config_overrides() const;
  LoadedCheckpoint load(const std::string& folder) const;
};

}  // namespace qkscope::cli
