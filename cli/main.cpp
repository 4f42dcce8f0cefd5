#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/program.h"
#include "qkscope/error.h"
#include "qkscope/experimental/cpu.h"
#include "qkscope/experimental/text.h"
#include "qkscope/version.h"

namespace {

using qkscope::cli::kBadInput;

// CLI11 takes a first word that is no command for a missing one; we say what it is.
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
  CLI::App app{"What the attention heads of language models do with position", "qkscope"};
  app.set_version_flag("--version", [] {
    return fmt::format("qkscope {} ({})", qkscope::version_string(), qkscope::cpu_target());
  });
  app.failure_message([](const CLI::App* at, const CLI::Error& error) {
    return fmt::format("error: {}\n'{} --help' lists the options.\n", error.what(), at->get_name());
  });
  qkscope::cli::add_commands(app);
  app.allow_extras();  // looked at below; after the commands, which would inherit it
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kBadInput;
  }
  if (!app.get_subcommands().empty()) return 0;
  throw qkscope::Error(qkscope::ErrorKind::bad_input,
                       missing_command(app) + "\n'qkscope --help' lists the commands.");
}

}  // namespace

int main(int argc, char** argv) {
  qkscope::cli::guarded([&] { return run(argc, argv); });
}
