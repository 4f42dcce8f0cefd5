// What the programs share: errors become one line and an exit code.
#pragma once

#include <functional>

namespace qkscope::cli {

inline constexpr int kBadInput = 2;

// Ends the process with what the program returns.
[[noreturn]] void guarded(const std::function<int()>& program);

}  // namespace qkscope::cli
