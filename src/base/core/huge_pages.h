// Transparent huge pages.
#pragma once

#include <cstddef>
#include <memory>

#include <sys/mman.h>

namespace qkscope {

// Asks for huge pages in the 2 MiB blocks of fresh memory, which fault in faster; without kernel
// support the call has no effect.
inline void request_huge_pages(void* memory, std::size_t bytes) {
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  // Advisory: ignore errors.
  if (std::align(kHugePage, kHugePage, memory, bytes) != nullptr)
    ::madvise(memory, bytes, MADV_HUGEPAGE);
}

}  // namespace qkscope
