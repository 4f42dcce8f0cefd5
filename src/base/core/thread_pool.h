// Internal additions to the thread pool of qkscope/experimental/threads.h.
#pragma once

#include <cstddef>
#include <future>
#include <memory>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "qkscope/experimental/threads.h"

namespace qkscope {

// Runs `body` on a new thread or, if no thread can be created (`ulimit -u`), on the thread that
// waits for the result. Does not use std::async with the default launch policy, which moves from
// `body` even if it fails to start a thread.
template <typename Body>
auto run_in_background(Body body) -> std::future<std::invoke_result_t<Body&>> {
  const auto shared = std::make_shared<Body>(std::move(body));
  const auto run = [shared] { return (*shared)(); };
  try {
    return std::async(std::launch::async, run);
  } catch (const std::system_error&) {
    return std::async(std::launch::deferred, run);
  }
}

// Returns function(element) for every element of a vector, computed in parallel.
template <typename Element, typename Function>
auto parallel_map(const std::vector<Element>& elements, const Function& function) {
  std::vector<std::invoke_result_t<const Function&, const Element&>> results(elements.size());
  parallel_for(std::ssize(elements), [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    results[at] = function(elements[at]);
  });
  return results;
}

// Calls body(begin, end) in parallel for consecutive ranges of at most `grain` indices.
void parallel_for_ranges(std::int64_t count, std::int64_t grain,
                         const std::function<void(std::int64_t, std::int64_t)>& body);

// Returns the smallest CPU quota (cpu.max) among a cgroup v2 and its ancestors, as a number of
// cores, rounded up; 0 if there is none. `membership`: /proc/self/cgroup; `root`: /sys/fs/cgroup.
int cgroup_cpu_limit(const std::string& membership, const std::string& root);

// Requests transparent huge pages for the 2 MiB blocks of newly allocated memory, so that fewer
// page faults occur; no effect without kernel support.
void request_huge_pages(void* memory, std::size_t bytes);

// Marks about 60 MiB of the calling thread's heap for transparent huge pages. Later allocations
// reuse that memory if malloc keeps freed blocks (mallopt M_TRIM_THRESHOLD); otherwise, or without
// kernel support, the call has no effect.
void request_huge_pages();

}  // namespace qkscope
