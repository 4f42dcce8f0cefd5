#include "cli/common_options.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <limits>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/logging.h"
#include "cli/numbers.h"
#include "qkscope/experimental/cpu.h"
#include "qkscope/experimental/threads.h"

namespace qkscope::cli {
namespace {

// Returns a CLI11 validator that accepts texts for which `valid` is true. The empty name keeps the
// validator out of the help text.
CLI::Validator make_validator(const std::string& expected,
                              const std::function<bool(const std::string&)>& valid) {
  return {[expected, valid](const std::string& text) {
            return valid(text) ? std::string()
                               : fmt::format("found '{}'; expected {}", text, expected);
          },
          ""};
}

// Returns a validator that accepts only decimal numbers. CLI11 itself reads 010 as the octal number
// 8 and accepts NaN for every range.
template <typename Number>
CLI::Validator number_in_range(const std::string& expected, Number least, Number most) {
  return make_validator(expected, [least, most](const std::string& text) {
    const auto value = parse_plain_number<Number>(text);
    return value && *value >= least && *value <= most;
  });
}

void check_number(CLI::Option& option) {
  using Limits = std::numeric_limits<double>;
  const auto type = option.get_type_name();
  if (type == "INT")
    option.check(number_in_range<std::int64_t>("a whole number without leading zeros", INT64_MIN,
                                               INT64_MAX));
  if (type == "UINT")
    option.check(number_in_range<std::uint64_t>("a whole number from 0 on, without leading zeros",
                                                0, UINT64_MAX));
  if (type == "FLOAT") option.check(number_in_range("a number", Limits::lowest(), Limits::max()));
}

}  // namespace

void check_all_numbers(CLI::App& app) {
  for (auto* option : app.get_options({})) check_number(*option);
  for (auto* command : app.get_subcommands({})) check_all_numbers(*command);
}

CLI::Validator positive() {
  return integer_between(1, kMostCount);
}

CLI::Validator not_negative() {
  return integer_between(0, kMostCount);
}

CLI::Validator number_between(double least, double most) {
  return number_in_range(fmt::format("a number from {} to {}", least, most), least, most);
}

CLI::Validator integer_between(std::int64_t least, std::int64_t most) {
  return number_in_range(fmt::format("a whole number from {} to {}", least, most), least, most);
}

CLI::Validator existing_file() {
  return make_validator("a file that exists", [](const std::string& path) {
    std::error_code ignored;
    return std::filesystem::is_regular_file(path, ignored);
  });
}

CLI::Option* choices(CLI::Option* option, const std::vector<std::string>& words) {
  return option->type_name(fmt::format("{}", fmt::join(words, "|")))
      ->check(make_validator(
          fmt::format("{}", fmt::join(words, words.size() == 2 ? " or " : ", ")),
          [words](const std::string& text) { return std::ranges::count(words, text) > 0; }));
}

void CommonOptions::add_to(CLI::App& command) {
  command.add_option("--threads", threads, "Number of threads (default: one per core)")
      ->check(integer_between(1, 4096))
      ->group(kCommonGroup);
  command.add_flag("--quiet", quiet, "Print errors only")->group(kCommonGroup);
  command.add_flag("-v,--verbose", verbose, "Print more messages")->group(kCommonGroup);
}

void CommonOptions::apply() const {
  set_up_logging(quiet ? Verbosity::quiet : verbose ? Verbosity::verbose : Verbosity::normal);
  set_thread_count(threads);
  cpu_target();  // throws here, before any work, if QKSCOPE_CPU is invalid
}

}  // namespace qkscope::cli
