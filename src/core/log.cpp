#include "core/log.h"

#include <atomic>
#include <memory>

namespace qkscope {
namespace {

struct Listener {
  LogCallback callback;
  LogLevel least;
};

// Never destroyed: threads may still speak while the process ends.
std::atomic<std::shared_ptr<const Listener>>& listener() {
  static auto* slot = new std::atomic<std::shared_ptr<const Listener>>();
  return *slot;
}

}  // namespace

void set_log_callback(LogCallback callback, LogLevel least) {
  listener() =
      callback ? std::make_shared<const Listener>(Listener{std::move(callback), least}) : nullptr;
}

bool log::wanted(LogLevel level) {
  const auto current = listener().load();
  return current && level >= current->least;
}

void log::write(LogLevel level, const std::string& message) {
  const auto current = listener().load();
  if (!current) return;
  try {
    current->callback(level, message);
  } catch (...) {  // whoever listens cannot stop the work
  }
}

}  // namespace qkscope
