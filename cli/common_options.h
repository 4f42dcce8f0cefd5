// Options of every command.
#pragma once

#include <CLI/CLI.hpp>

namespace qkscope::cli {

struct CommonOptions {
  int threads = 0;  // 0: one per core
  bool quiet = false;
  bool verbose = false;

  void add_to(CLI::App& command);
  // Sets up logging, the thread pool and the CPU target; call first in the command.
  void apply() const;
};

// Checks of numbers, with shorter error messages than those of CLI11.
CLI::Validator positive();
CLI::Validator not_negative();

}  // namespace qkscope::cli
