// The program qkscope.
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/error.h"
#include "cli/program.h"
#include "qkscope/experimental/cpu.h"
#include "qkscope/experimental/text.h"
#include "qkscope/version.h"

namespace {

using qkscope::cli::bad_input;

// CLI11 reports an unknown command as a missing command; this message names the unknown word.
std::string missing_command(const CLI::App& app) {
  const auto words = app.remaining();
  if (words.empty()) return "a command is needed";
  std::vector<std::string> names;
  for (const auto* command : app.get_subcommands({})) names.push_back(command->get_name());
  const auto guess = qkscope::nearest(words.front(), names);
  return fmt::format("'{}' is not a command{}", words.front(),
                     guess.empty() ? "" : fmt::format("; did you mean '{}'?", guess));
}

int run(int argc, char** argv) {
  if (const auto line = qkscope::cli::replacement_of_old_command({argv + 1, argv + argc});
      !line.empty())
    bad_input("'{}' is not a command of this version; type\n  {}", argv[1], line);
  CLI::App app{"What the attention heads of language models do with position", "qkscope"};
  app.set_version_flag("--version", [] {
    return fmt::format("qkscope {} ({})", qkscope::version_string(), qkscope::cpu_target());
  });
  qkscope::cli::add_commands(app);
  // missing_command() reports extra words. allow_extras() must be called after add_commands(),
  // because commands inherit the setting when they are added.
  app.allow_extras();
  app.callback([&app] {
    if (app.get_subcommands().empty())
      bad_input("{}\n'qkscope --help' lists the commands.", missing_command(app));
  });
  return qkscope::cli::parse_and_run(app, argc, argv);
}

}  // namespace

int main(int argc, char** argv) {
  qkscope::cli::guarded([&] { return run(argc, argv); });
}
