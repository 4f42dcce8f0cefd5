// Transparent huge pages (madvise), which reduce TLB misses.
#pragma once

namespace qkscope {

// Marks about 60 MiB of the calling thread's heap for transparent huge pages. Later allocations
// reuse that memory if malloc keeps freed blocks (mallopt M_TRIM_THRESHOLD); otherwise, or without
// kernel support, the call has no effect.
void request_huge_pages();

}  // namespace qkscope
