// Options of every command.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

namespace qkscope::cli {

// Help heading of the options that every command has.
inline constexpr char kCommonGroup[] = "Common";

struct CommonOptions {
  int threads = 0;  // 0: one per core
  bool quiet = false;
  bool verbose = false;

  void add_to(CLI::App& command);
  // Sets up logging, the thread pool and the CPU target; call first in the command.
  void apply() const;
};

// Sets the help heading for options that are added to the command after this call.
inline void start_section(CLI::App& command, const std::string& title) {
  command.option_defaults()->group(title);
}

// Adds a command with the common options (Arguments::common), which are applied before `run` is
// called. Returns the command and its arguments; the arguments live as long as the command.
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

// Upper limits of option values; kMostCount * kMostShards fits in 64 bits.
inline constexpr std::int64_t kMostCount = std::int64_t{1} << 40;
inline constexpr std::int64_t kMostShards = 1'000'000;

// Validators of option values. Error messages state the value found and the values expected. Unlike
// the validators of CLI11, they add nothing to the help text.
CLI::Validator positive();
CLI::Validator not_negative();
CLI::Validator number_between(double least, double most);  // any number
CLI::Validator integer_between(std::int64_t least, std::int64_t most);
CLI::Validator existing_file();

// Makes every numeric option reject NaN, infinity, octal and hexadecimal numbers. Call after all
// commands have been added.
void check_all_numbers(CLI::App& app);

// Restricts the option to these words; help and completion show them as "mul|abs".
CLI::Option* choices(CLI::Option* option, const std::vector<std::string>& words);

}  // namespace qkscope::cli
