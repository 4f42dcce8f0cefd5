#include "cli/program.h"

#include <exception>

#include <fmt/format.h>

#include "cli/logging.h"
#include "qkscope/error.h"

namespace qkscope::cli {

int guarded(const std::function<int()>& program) {
  set_up_logging(Verbosity::normal);
  try {
    return program();
  } catch (const Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return error.exit_code();
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}

}  // namespace qkscope::cli
