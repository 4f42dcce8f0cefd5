#include "base/core/log.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

namespace qkscope {
namespace {

struct Listener {
  LogCallback callback;
  LogLevel least;
};

// A pointer and not a shared one, which would be read under a lock: a process that was forked while
// another thread read it would wait for ever.
constinit std::atomic<const Listener*> listener = nullptr;

// Listeners are set once or twice in a process and stay: threads may still speak to an old one, and
// while the process ends.
std::vector<std::unique_ptr<const Listener>>& all_listeners() {
  static auto* all = new std::vector<std::unique_ptr<const Listener>>();
  return *all;
}

}  // namespace

void set_log_callback(LogCallback callback, LogLevel least) {
  if (!callback) {
    listener = nullptr;
    return;
  }
  static constinit std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  auto& all = all_listeners();
  all.push_back(std::make_unique<const Listener>(Listener{std::move(callback), least}));
  listener = all.back().get();
}

bool log::wanted(LogLevel level) {
  const auto* current = listener.load();
  return current != nullptr && level >= current->least;
}

void log::write(LogLevel level, const std::string& message) {
  const auto* current = listener.load();
  if (current == nullptr) return;
  try {
    current->callback(level, message);
  } catch (...) {  // whoever listens cannot stop the work
  }
}

}  // namespace qkscope
