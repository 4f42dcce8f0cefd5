#include "cli/common_options.h"

#include <fmt/format.h>

#include "cli/logging.h"
#include "qkscope/cpu.h"
#include "qkscope/threads.h"

namespace qkscope::cli {
namespace {

// `fits` says whether a number is one of `kind`.
template <typename Fits>
CLI::Validator number_that(const Fits& fits, const std::string& kind, const std::string& name) {
  return {[fits, kind](const std::string& text) {
            double value = 0;
            const bool good = CLI::detail::lexical_cast(text, value) && fits(value);
            return good ? std::string() : fmt::format("found '{}'; expected {}", text, kind);
          },
          name};
}

}  // namespace

CLI::Validator positive() {
  return number_that([](double value) { return value > 0; }, "a number above 0", "POSITIVE");
}

CLI::Validator not_negative() {
  return number_that([](double value) { return value >= 0; }, "0 or a number above it",
                     "NONNEGATIVE");
}

void CommonOptions::add_to(CLI::App& command) {
  command.add_option("--threads", threads, "Threads to use (default: one per core)")
      ->check(CLI::Range(1, 4096));
  command.add_flag("--quiet", quiet, "Print errors only");
  command.add_flag("-v,--verbose", verbose, "Print more about what is being done");
}

void CommonOptions::apply() const {
  set_up_logging(quiet ? Verbosity::quiet : verbose ? Verbosity::verbose : Verbosity::normal);
  set_thread_count(threads);
  cpu_target();  // complains about QKSCOPE_CPU before anything is done
}

}  // namespace qkscope::cli
