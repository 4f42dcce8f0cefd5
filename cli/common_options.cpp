#include "cli/common_options.h"

#include <fmt/format.h>

#include "cli/logging.h"
#include "qkscope/experimental/cpu.h"
#include "qkscope/experimental/threads.h"

namespace qkscope::cli {
namespace {

// Wraps a CLI11 validator to report errors with our own message.
CLI::Validator worded(const CLI::Validator& check, const std::string& expected,
                      const std::string& name) {
  return {[check, expected](const std::string& text) {
            return check(text).empty() ? std::string()
                                       : fmt::format("found '{}'; expected {}", text, expected);
          },
          name};
}

}  // namespace

CLI::Validator positive() {
  return worded(CLI::PositiveNumber, "a number above 0", "POSITIVE");
}

CLI::Validator not_negative() {
  return worded(CLI::NonNegativeNumber, "0 or a number above it", "NONNEGATIVE");
}

void CommonOptions::add_to(CLI::App& command) {
  command.add_option("--threads", threads, "Number of threads (default: one per core)")
      ->check(CLI::Range(1, 4096))
      ->group("Common");
  command.add_flag("--quiet", quiet, "Print errors only")->group("Common");
  command.add_flag("-v,--verbose", verbose, "Print more messages")->group("Common");
}

void CommonOptions::apply() const {
  set_up_logging(quiet ? Verbosity::quiet : verbose ? Verbosity::verbose : Verbosity::normal);
  set_thread_count(threads);
  cpu_target();  // throws here, before any work, if QKSCOPE_CPU is invalid
}

}  // namespace qkscope::cli
