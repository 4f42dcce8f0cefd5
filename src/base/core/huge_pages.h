// Transparent huge pages.
#pragma once

#include <cstddef>
#include <memory>

#include <sys/mman.h>

namespace qkscope {

// Requests transparent huge pages (madvise) for newly allocated memory, so that fewer page faults
// occur; no effect without kernel support.
inline void request_huge_pages(void* memory, std::size_t bytes) {
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  // Advisory: ignore errors.
  if (std::align(kHugePage, kHugePage, memory, bytes) != nullptr)
    ::madvise(memory, bytes, MADV_HUGEPAGE);
}

}  // namespace qkscope
