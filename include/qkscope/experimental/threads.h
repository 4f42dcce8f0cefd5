// The threads that the library computes with: one pool for the whole process.
#pragma once

#include <cstdint>
#include <functional>

#include "qkscope/version.h"

namespace qkscope {

// The number of threads, the calling one included. 0 means one per core that this process may run
// on. Not to be called while something runs.
QKSCOPE_API void set_thread_count(int count);
QKSCOPE_API int thread_count();

// Calls body(i) for each i in [0, count), each exactly once, on all threads; returns when all are
// done. Indices are handed out in ascending order as threads become free, so work whose result
// depends only on i gives the same result at any thread count. A nested call runs on the calling
// thread. The first exception stops the handing out and is thrown here.
QKSCOPE_API void parallel_for(std::int64_t count, const std::function<void(std::int64_t)>& body);

}  // namespace qkscope
