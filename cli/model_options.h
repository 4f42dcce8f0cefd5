// Options that say which model runs, and how.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "qkscope/model.h"

namespace qkscope::cli {

struct ModelArguments {
  std::string name;      // folder or model id
  std::string revision;  // "" is main
  std::string device = "auto";
  std::string dtype = "float32";
  std::string device_memory;           // "8GiB"; "": what is free
  std::vector<std::string> overrides;  // KEY=VALUE

  void add_to(CLI::App& command);
  // The folder on disk; what is missing of a model id is downloaded.
  std::string fetch(bool quiet) const;
  // For batches of at most so many tokens; 0: not known.
  ModelOptions options(std::int64_t longest_batch) const;
  // The model of that folder, for batches of at most so many tokens.
  Model load(const std::string& folder, std::int64_t longest_batch) const;
};

}  // namespace qkscope::cli
