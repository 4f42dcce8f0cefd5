// The thread pool of the library: one per process.
#pragma once

#include <cstdint>
#include <functional>

#include "qkscope/version.h"

namespace qkscope {

// Sets the number of threads, including the calling one. 0 means one per core of the process's CPU
// affinity mask. Must not be called during parallel_for().
QKSCOPE_API void set_thread_count(int count);
QKSCOPE_API int thread_count();

// Calls body(i) exactly once for each i in [0, count), on all threads, and returns when all calls
// are done. Threads take indices in ascending order; if body(i) depends on i alone, the result is
// the same for any thread count. Nested calls run on the calling thread. After the first exception
// no further index is started and the exception is rethrown to the caller.
QKSCOPE_API void parallel_for(std::int64_t count, const std::function<void(std::int64_t)>& body);

}  // namespace qkscope
