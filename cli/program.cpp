#include "cli/program.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <unistd.h>

#include "cli/common_options.h"
#include "cli/logging.h"
#include "cli/option_table.h"
#include "cli/parse_errors.h"
#include "qkscope/error.h"
#include "qkscope/experimental/text.h"

namespace qkscope::cli {
namespace {

constexpr int kFailure = 1;
constexpr int kBadInput = 2;

// Reports exhausted memory in a static constructor (CLI11 has some), which runs before main(). The
// priority puts this function before all other constructors of the program.
[[gnu::constructor(101)]] void report_memory_exhausted_before_main() {
  std::set_terminate([] {
    try {
      if (std::current_exception()) std::rethrow_exception(std::current_exception());
    } catch (const std::bad_alloc&) {
      std::fputs("error: out of memory\n", stderr);
      std::_Exit(kFailure);
    } catch (...) {
    }
    __gnu_cxx::__verbose_terminate_handler();
  });
}

// Opens /dev/null on the descriptor of each closed standard stream, because the next opened file
// would reuse the descriptor and receive the output. Opens it in the wrong direction (standard
// output read-only), so that printing still fails.
void occupy_closed_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) != -1 || errno != EBADF) continue;
    const int direction = stream == STDIN_FILENO ? O_WRONLY : O_RDONLY;
    if (::open("/dev/null", direction) != stream) std::_Exit(kFailure);
  }
}

// True once operator new has failed. Libraries that do not check their allocations may crash later.
std::atomic<bool> allocation_failed = false;

void handle_failed_allocation() {
  allocation_failed = true;
  throw std::bad_alloc();
}

// Prints the error and exits. Async-signal-safe.
[[noreturn]] void exit_out_of_memory() {
  constexpr std::string_view kMessage = "error: out of memory\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kMessage.data(), kMessage.size());
  std::_Exit(kFailure);
}

extern "C" void handle_sigsegv(int signal) {
  if (allocation_failed) exit_out_of_memory();
  (void)std::signal(signal, SIG_DFL);  // the faulting instruction raises the signal again
}

// Terminate handler: reports a failed allocation inside a destructor or another function that
// cannot propagate exceptions, instead of aborting. If that function belongs to a library, there
// may be no current exception.
[[noreturn]] void handle_terminate() {
  try {
    if (const auto current = std::current_exception()) std::rethrow_exception(current);
    if (allocation_failed) exit_out_of_memory();
  } catch (const std::bad_alloc&) {
    exit_out_of_memory();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
  } catch (...) {
  }
  std::abort();
}

int report_error(const std::string& message, int code) {
  // fmt::print would throw if standard error is not writable.
  std::fputs(("error: " + printable(message) + "\n").c_str(), stderr);
  return code;
}

int run_reporting_errors(const std::function<int()>& program) {
  try {
    return program();
  } catch (const Error& error) {
    return report_error(error.what(), error.exit_code());
  } catch (const std::bad_alloc&) {
    return report_error("out of memory", kFailure);
  } catch (const std::exception& error) {
    return report_error(error.what(), kFailure);
  }
}

}  // namespace

int parse_and_run(CLI::App& app, int argc, char** argv) {
  use_table_for_help(app);
  check_all_numbers(app);
  app.failure_message([](const CLI::App* program, const CLI::Error& error) {
    return parse_error_message(*program, dynamic_cast<const CLI::ParseError&>(error));
  });
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kBadInput;
  }
  return 0;
}

void run_and_exit(const std::function<int()>& program) {
  occupy_closed_streams();
  std::set_terminate(handle_terminate);
  std::set_new_handler(handle_failed_allocation);
  // Keep a SIGSEGV handler that a sanitizer has installed.
  if (const auto before = std::signal(SIGSEGV, handle_sigsegv); before != SIG_DFL)
    (void)std::signal(SIGSEGV, before);
  (void)std::signal(SIGXFSZ, SIG_IGN);  // a write beyond `ulimit -f` then fails with EFBIG
  report_truncated_mappings();
  set_up_logging(Verbosity::normal);
  int code = run_reporting_errors(program);
  errno = 0;
  const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (!written && code == 0)
    code = report_error(
        std::string("standard output: cannot write: ") +
            (errno == 0 ? "an earlier part did not get through" : std::strerror(errno)),
        kFailure);
  // _Exit skips the exit handlers of libraries: the handler of the allocator in pyarrow's libarrow
  // crashes when memory is exhausted.
  std::_Exit(code);
}

}  // namespace qkscope::cli
