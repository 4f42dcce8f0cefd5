// The commands of the program. Each function adds one command with its options and its action.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace qkscope::cli {

// Adds all commands, in groups.
void add_commands(CLI::App& app);

void add_analyze(CLI::App& app);
void add_attribute(CLI::App& app);
void add_bench(CLI::App& app);
void add_branches(CLI::App& hub);  // a subcommand of `hub`
void add_capture(CLI::App& app);
void add_check(CLI::App& app);
void add_combine(CLI::App& app);
void add_compare(CLI::App& app);
void add_completion(CLI::App& app);
void add_dataset(CLI::App& app);
void add_demo(CLI::App& app);
void add_export(CLI::App& app);
void add_figures(CLI::App& app);
void add_gc(CLI::App& app);
void add_generate(CLI::App& app);
void add_heads(CLI::App& app);
void add_hub(CLI::App& app);
void add_inspect(CLI::App& app);
void add_merge(CLI::App& app);
void add_pool(CLI::App& app);
void add_report(CLI::App& app);
void add_stats(CLI::App& app);
void add_submit(CLI::App& app);
void add_sweep(CLI::App& app);
void add_synth(CLI::App& app);
void add_tokenize(CLI::App& app);
void add_trace(CLI::App& app);
void add_view(CLI::App& app);

// Adds the options and the action of `qkscope capture` to a command or to the program sniff-qk.
void set_up_capture(CLI::App& command);

// Returns the command line that replaces a removed command, or "" if the first word is not a
// removed command. `words` are the program's arguments.
std::string replacement_of_old_command(const std::vector<std::string>& words);

}  // namespace qkscope::cli
