// Ctrl-C for commands that can be continued: the first asks the command to end at a good place, the
// second kills as usual.
#pragma once

#include <atomic>

namespace qkscope::cli {

// Becomes true when SIGINT or SIGTERM comes; until the call they kill.
const std::atomic<bool>& watch_stop_signals();

// Ends the program by the signal that came: the shell sees that it was stopped, not that it is
// done.
void end_by_stop_signal();

}  // namespace qkscope::cli
