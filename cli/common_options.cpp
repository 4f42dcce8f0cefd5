#include "cli/common_options.h"

#include "cli/logging.h"
#include "qkscope/cpu.h"
#include "qkscope/threads.h"

namespace qkscope::cli {

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
