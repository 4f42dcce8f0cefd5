#include "cli/program.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <unistd.h>

#include "cli/logging.h"
#include "qkscope/error.h"
#include "qkscope/text.h"

namespace qkscope::cli {
namespace {

constexpr int kFailure = 1;

// A closed stream's number would go to the next file that is opened, and what is printed would land
// in it. In its place stands a file that cannot be used in the stream's direction, so that printing
// still fails.
void occupy_closed_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) != -1 || errno != EBADF) continue;
    const int direction = stream == STDIN_FILENO ? O_WRONLY : O_RDONLY;
    if (::open("/dev/null", direction) != stream) std::_Exit(kFailure);
  }
}

// Where memory ends inside a destructor no exception can pass: say so instead of aborting.
[[noreturn]] void end_without_exception() {
  try {
    if (const auto current = std::current_exception()) std::rethrow_exception(current);
  } catch (const std::bad_alloc&) {
    std::fputs("error: out of memory\n", stderr);
    std::_Exit(kFailure);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
  } catch (...) {
  }
  std::abort();
}

int fail(const std::string& message, int code) {
  // Not fmt::print, which throws where standard error cannot be written.
  std::fputs(("error: " + printable(message) + "\n").c_str(), stderr);
  return code;
}

// Without the ends of libraries, which may need memory that there is not: pyarrow's jemalloc
// crashes.
[[noreturn]] void end_out_of_memory(const std::string& message) {
  std::_Exit(fail(message, kFailure));
}

int run(const std::function<int()>& program) {
  try {
    return program();
  } catch (const Error& error) {
    if (std::string_view(error.what()).starts_with("out of memory"))
      end_out_of_memory(error.what());
    return fail(error.what(), error.exit_code());
  } catch (const std::bad_alloc&) {
    end_out_of_memory("out of memory");
  } catch (const std::exception& error) {
    return fail(error.what(), kFailure);
  }
}

}  // namespace

int guarded(const std::function<int()>& program) {
  occupy_closed_streams();
  std::set_terminate(end_without_exception);
  report_cut_files();
  set_up_logging(Verbosity::normal);
  const int code = run(program);
  errno = 0;
  const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (written || code != 0) return code;
  return fail(std::string("standard output: cannot write: ") +
                  (errno == 0 ? "an earlier part did not get through" : std::strerror(errno)),
              kFailure);
}

}  // namespace qkscope::cli
