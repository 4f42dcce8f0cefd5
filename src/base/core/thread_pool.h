// Additions to the thread pool of qkscope/experimental/threads.h.
#pragma once

#include "qkscope/experimental/threads.h"

namespace qkscope {

// Calls body(begin, end) in parallel for consecutive ranges of at most `grain` indices.
void parallel_for_ranges(std::int64_t count, std::int64_t grain,
                         const std::function<void(std::int64_t, std::int64_t)>& body);

// Marks about 60 MiB of the calling thread's heap for transparent huge pages. Later allocations
// reuse that memory if malloc keeps freed blocks (mallopt M_TRIM_THRESHOLD); otherwise, or without
// kernel support, the call has no effect.
void request_huge_pages();

}  // namespace qkscope
