// Options of every command.
#pragma once

#include <memory>
#include <string>
#include <utility>

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

// Adds a command with the options of its Arguments::common, which are applied before `run` is
// called. Returns the command and its arguments, which live as long as the command.
template <typename Arguments>
std::pair<CLI::App*, Arguments*> add_command(CLI::App& app, const std::string& name,
                                             const std::string& help, void (*run)(Arguments&)) {
  auto* command = app.add_subcommand(name, help);
  auto arguments = std::make_shared<Arguments>();
  arguments->common.add_to(*command);
  command->callback([arguments, run] {
    arguments->common.apply();
    run(*arguments);
  });
  return {command, arguments.get()};
}

// Validators of numbers, with shorter error messages than those of CLI11.
CLI::Validator positive();
CLI::Validator not_negative();

}  // namespace qkscope::cli
