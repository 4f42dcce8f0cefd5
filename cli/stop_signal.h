// Stop signals for commands that can be resumed: the first Ctrl-C lets the command finish its
// current step, the second one kills it.
#pragma once

#include <atomic>

namespace qkscope::cli {

// Installs signal handlers. The returned flag becomes true on SIGINT, SIGTERM, SIGHUP or SIGUSR1,
// which schedulers send before a time limit. Signals that were ignored at start, such as SIGHUP
// under nohup, stay ignored.
const std::atomic<bool>& watch_stop_signals();

// Terminates the process with the received signal, so that the shell sees it as interrupted, not as
// finished.
void end_by_stop_signal();

}  // namespace qkscope::cli
