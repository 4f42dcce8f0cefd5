// Ctrl-C for commands that can be continued: the first asks the command to end at a good place, the
// second kills as usual.
#pragma once

#include <atomic>

namespace qkscope::cli {

// Becomes true when SIGINT, SIGTERM, SIGHUP or SIGUSR1 (what schedulers send before a time limit)
// comes; until the call they kill. One that the program was started to ignore, as nohup does with
// SIGHUP, stays ignored.
const std::atomic<bool>& watch_stop_signals();

// Ends the program by the signal that came: the shell sees that it was stopped, not that it is
// done.
void end_by_stop_signal();

}  // namespace qkscope::cli
