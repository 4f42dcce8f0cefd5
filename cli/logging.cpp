#include "cli/logging.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include <unistd.h>

#include "qkscope/experimental/text.h"

namespace qkscope::cli {
namespace {

// Indexed by LogLevel.
struct LevelStyle {
  const char* name;
  const char* color;  // ANSI escape sequence
};
constexpr LevelStyle kStyles[] = {{"debug", "\033[36m"},
                                  {"info", "\033[32m"},
                                  {"warning", "\033[33m\033[1m"},
                                  {"error", "\033[31m\033[1m"}};
static_assert(static_cast<int>(LogLevel::debug) == 0 && static_cast<int>(LogLevel::error) == 3);

std::atomic<LogLevel> lowest_level{LogLevel::info};

bool uses_color() {
  static const bool result = [] {
    const char* terminal = std::getenv("TERM");
    return ::isatty(STDERR_FILENO) == 1 && terminal != nullptr &&
           std::string_view(terminal) != "dumb";
  }();
  return result;
}

}  // namespace

void log_line(LogLevel level, const std::string& message) {
  if (level < lowest_level.load()) return;
  const auto& style = kStyles[static_cast<std::size_t>(level)];
  const auto line = fmt::format("{}{}{}: {}\n", uses_color() ? style.color : "", style.name,
                                uses_color() ? "\033[m" : "", printable(message));
  // One fwrite per line keeps lines from different threads from interleaving. Write errors are
  // ignored: standard error may be closed.
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
}

void set_up_logging(Verbosity verbosity) {
  const auto lowest = verbosity == Verbosity::quiet    ? LogLevel::error
                      : verbosity == Verbosity::normal ? LogLevel::info
                                                       : LogLevel::debug;
  lowest_level = lowest;
  set_log_callback(
      [](LogLevel level, std::string_view message) { log_line(level, std::string(message)); },
      lowest);
  set_progress_output(verbosity == Verbosity::quiet ? nullptr : stderr);
}

}  // namespace qkscope::cli
