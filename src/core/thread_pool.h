// One pool of worker threads for the whole program.
#pragma once

#include <cstdint>
#include <functional>

#include "qkscope/version.h"

namespace qkscope {

// The number of threads parallel_for uses, the calling one included. 0 means one per core this
// process may run on. Call before heavy work; not from inside a parallel_for. Users find both in
// qkscope/forward.h.
QKSCOPE_API void set_thread_count(int count);
QKSCOPE_API int thread_count();

// Calls body(i) for each i in [0, count), each exactly once, on all threads; returns when all are
// done. Indices are handed out in ascending order as threads become free, so work whose result
// depends only on i gives the same result at any thread count. A nested call runs on the calling
// thread. The first exception stops the handing out and is rethrown here.
void parallel_for(std::int64_t count, const std::function<void(std::int64_t)>& body);

// The same over ranges: body(begin, end) for consecutive ranges of at most `grain` indices.
void parallel_ranges(std::int64_t count, std::int64_t grain,
                     const std::function<void(std::int64_t, std::int64_t)>& body);

}  // namespace qkscope
