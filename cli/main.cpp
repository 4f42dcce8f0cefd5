// The program qkscope.
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/error.h"
#include "cli/program.h"
#include "qkscope/experimental/cpu.h"
#include "qkscope/version.h"

namespace {

using qkscope::cli::reject;

int run(int argc, char** argv) {
  if (const auto line = qkscope::cli::replacement_of_old_command({argv + 1, argv + argc});
      !line.empty())
    reject("'{}' is not a command of this version; type\n  {}", argv[1], line);
  CLI::App app{"What the attention heads of language models do with position", "qkscope"};
  app.set_version_flag("--version", [] {
    return fmt::format("qkscope {} ({})", qkscope::version_string(), qkscope::cpu_target());
  });
  qkscope::cli::add_commands(app);
  app.require_subcommand(1);
  return qkscope::cli::parse_and_run(app, argc, argv);
}

}  // namespace

int main(int argc, char** argv) {
  qkscope::cli::run_and_exit([&] { return run(argc, argv); });
}
