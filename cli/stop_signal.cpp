#include "cli/stop_signal.h"

#include <csignal>
#include <cstdio>
#include <initializer_list>

namespace qkscope::cli {
namespace {

std::atomic<bool> stop_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free);
volatile std::sig_atomic_t stop_signal = SIGINT;

extern "C" void request_stop(int signal) {
  stop_signal = signal;
  stop_requested.store(true);
  std::signal(signal, SIG_DFL);
}

// Returns true if the signal is ignored, as SIGHUP is under nohup.
bool is_ignored(int signal) {
  struct sigaction now {};
  return ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

}  // namespace

const std::atomic<bool>& watch_stop_signals() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1})
    if (!is_ignored(signal)) std::signal(signal, request_stop);
  return stop_requested;
}

void end_by_stop_signal() {
  std::fflush(stdout);
  std::signal(stop_signal, SIG_DFL);
  std::raise(stop_signal);
}

}  // namespace qkscope::cli
