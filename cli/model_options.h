// Options of commands that run one model.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "qkscope/model.h"

namespace qkscope::cli {

struct ModelArguments {
  std::string name;      // folder, GGUF file, model id or address
  std::string revision;  // "" is main
  std::string device = "auto";
  std::string dtype = "float32";
  std::string device_memory;           // "8GiB"; "": the free memory
  std::vector<std::string> overrides;  // KEY=VALUE

  void add_to(CLI::App& command);
  // Returns the local folder of the model. For a model id, downloads missing files first.
  std::string fetch(bool quiet) const;
  // Returns options for Model::load(). `longest_batch`: largest number of tokens in a batch; 0 if
  // unknown.
  ModelOptions options(std::int64_t longest_batch) const;
  Model load(const std::string& folder, std::int64_t longest_batch) const;
};

}  // namespace qkscope::cli
