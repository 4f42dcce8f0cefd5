// The pool of worker threads behind qkscope/experimental/threads.h.
#pragma once

#include "qkscope/experimental/threads.h"

namespace qkscope {

// parallel_for over ranges: body(begin, end) for consecutive ranges of at most `grain` indices.
void parallel_ranges(std::int64_t count, std::int64_t grain,
                     const std::function<void(std::int64_t, std::int64_t)>& body);

}  // namespace qkscope
