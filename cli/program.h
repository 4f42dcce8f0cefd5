// What the programs share: errors become one line and an exit code.
#pragma once

#include <functional>

namespace qkscope::cli {

inline constexpr int kBadInput = 2;

int guarded(const std::function<int()>& program);

}  // namespace qkscope::cli
