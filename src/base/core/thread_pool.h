// parallel_for over ranges; the pool itself is declared in qkscope/experimental/threads.h.
#pragma once

#include "qkscope/experimental/threads.h"

namespace qkscope {

// Calls body(begin, end) in parallel for consecutive ranges of at most `grain` indices.
void parallel_ranges(std::int64_t count, std::int64_t grain,
                     const std::function<void(std::int64_t, std::int64_t)>& body);

}  // namespace qkscope
