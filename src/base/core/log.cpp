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

// A raw pointer, because std::atomic<std::shared_ptr> uses a lock: a child process forked while
// another thread held that lock would wait forever.
constinit std::atomic<const Listener*> listener = nullptr;

// Owns every listener ever set and is never destroyed: another thread may still call an old
// listener, even while the process exits.
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
  } catch (...) {  // an exception of the callback must not stop the computation
  }
}

}  // namespace qkscope
