// The thread pool of the library: one per process.
#pragma once

#include <cstdint>
#include <functional>

#include "qkscope/version.h"

namespace qkscope {

// Sets how many threads parallel_for() uses, the calling thread included. 0 means one thread for
// each core in the CPU affinity mask of the process. Must not be called while parallel_for() runs.
QKSCOPE_API void set_thread_count(int count);
QKSCOPE_API int thread_count();

// Calls body(i) exactly once for each i in [0, count), on all threads, and returns when all calls
// are done. Threads take indices in ascending order; if body(i) depends on i alone, the result is
// the same for any thread count. Nested calls run on the calling thread. After the first exception
// no further index is started and the exception is rethrown to the caller.
QKSCOPE_API void parallel_for(std::int64_t count, const std::function<void(std::int64_t)>& body);

}  // namespace qkscope
