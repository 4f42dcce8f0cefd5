// qkscope completion: prints a completion script for a shell. qkscope manual: prints the manual
// page.
#include "cli/completion.h"

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/common_options.h"

namespace qkscope::cli {
namespace {

struct CompletionArguments {
  CommonOptions common;
  std::string shell;
  const CLI::App* program = nullptr;
};

void run(CompletionArguments& options) {
  const auto table = option_table(*options.program);
  const auto script = options.shell == "bash"  ? bash_completion(table)
                      : options.shell == "zsh" ? zsh_completion(table)
                                               : fish_completion(table);
  fmt::print("{}", script);
}

}  // namespace

void add_completion(CLI::App& app) {
  auto [command, options] = add_command<CompletionArguments>(
      app, "completion", "Print a script that completes commands and options in a shell", run);
  options->program = &app;
  choices(command->add_option("shell", options->shell, "bash, zsh or fish")->required(),
          {"bash", "zsh", "fish"});
  command->footer(
      "bash:  qkscope completion bash > ~/.local/share/bash-completion/completions/qkscope\n"
      "zsh:   qkscope completion zsh > \"${fpath[1]}/_qkscope\", or in ~/.zshrc after compinit:\n"
      "       source <(qkscope completion zsh)\n"
      "fish:  qkscope completion fish > ~/.config/fish/completions/qkscope.fish\n"
      "The script is made from the options of this version; write it again after an update.");

  app.add_subcommand("manual", "Print the manual page in the format of man(7)")
      ->group("")
      ->callback([&app] { fmt::print("{}", manual_page(option_table(app))); });
}

}  // namespace qkscope::cli
