#include "base/core/log.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <memory>
#include <mutex>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "base/core/clock.h"
#include "qkscope/experimental/text.h"

namespace qkscope {
namespace {

struct LogListener {
  LogCallback callback;
  LogLevel least;
};

// The log listener is a raw pointer, because std::atomic<std::shared_ptr> uses a lock: a child
// process forked while another thread held that lock would wait forever.
constinit std::atomic<const LogListener*> listener = nullptr;

constexpr auto kTerminalInterval = std::chrono::milliseconds(100);
constexpr auto kPlainInterval = std::chrono::seconds(10);
std::atomic<std::FILE*> progress_output = nullptr;

}  // namespace

void set_log_callback(LogCallback callback, LogLevel least) {
  if (!callback) {
    listener = nullptr;
    return;
  }
  static constinit std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  // Owns every log listener ever set and is never destroyed: another thread may still call an old
  // listener, even while the process exits.
  static auto* all = new std::vector<std::unique_ptr<const LogListener>>();
  all->push_back(std::make_unique<const LogListener>(LogListener{std::move(callback), least}));
  listener = all->back().get();
}

bool log::is_enabled(LogLevel level) {
  const auto* current = listener.load();
  return current != nullptr && level >= current->least;
}

void log::write(LogLevel level, const std::string& message) {
  const auto* current = listener.load();
  if (current == nullptr) return;
  try {
    current->callback(level, message);
  } catch (...) {  // an exception of the callback must not stop the computation
  }
}

std::string format_duration(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::llround(std::max(0.0, seconds)));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

void set_progress_output(std::FILE* out) {
  progress_output = out;
}

Progress::Progress(Options options)
    : options_(std::move(options)), start_(Clock::now()), printed_(start_) {
  if (options_.out == nullptr) options_.out = progress_output;
  if (options_.out == nullptr) options_.quiet = true;
  terminal_ = !options_.quiet && isatty(fileno(options_.out)) != 0;
}

Progress::~Progress() {
  finish();
}

void Progress::update(std::int64_t done, const std::string& detail) {
  done_ = done;
  detail_ = detail;
  if (Clock::now() - printed_ >= (terminal_ ? Clock::duration(kTerminalInterval) : kPlainInterval))
    print(false);
}

void Progress::finish() {
  if (finished_) return;
  finished_ = true;
  if (line() != shown_ || terminal_) print(true);
}

std::string Progress::line() const {
  const double elapsed = seconds_since(start_);
  std::string text = fmt::format("{}: {}", options_.what, done_);
  if (options_.total > 0) text += fmt::format("/{}", options_.total);
  text += " " + options_.unit;
  if (!detail_.empty()) text += ", " + detail_;
  if (const auto now = done_ - options_.before; options_.total > done_ && now > 0) {
    const auto left = static_cast<double>(options_.total - done_);
    text += fmt::format(", {} left", format_duration(elapsed / static_cast<double>(now) * left));
  }
  return text;
}

void Progress::print(bool last) {
  printed_ = Clock::now();
  if (options_.quiet) return;
  shown_ = line();
  const auto text = printable(shown_);
  // Ignore write errors: progress lines are optional.
  std::fputs(
      (terminal_ ? fmt::format("\r\x1b[K{}{}", text, last ? "\n" : "") : text + "\n").c_str(),
      options_.out);
  std::fflush(options_.out);
}

}  // namespace qkscope
