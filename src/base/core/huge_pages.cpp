#include "base/core/huge_pages.h"

#include <array>
#include <cstddef>
#include <memory>
#include <new>

#include <sys/mman.h>

namespace qkscope {

void request_huge_pages() {
  // Below 32 MiB, the largest M_MMAP_THRESHOLD of glibc, so that the blocks come from the heap. Two
  // blocks are about the working set of one head's analyses.
  constexpr std::size_t kBytes = std::size_t{30} << 20;
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  std::array<std::unique_ptr<std::byte[]>, 2> blocks;
  for (auto& block : blocks) {
    block.reset(new (std::nothrow) std::byte[kBytes]);
    void* first = block.get();
    auto bytes = kBytes;
    // Advisory: ignore errors.
    if (block && std::align(kHugePage, kHugePage, first, bytes) != nullptr)
      ::madvise(first, bytes, MADV_HUGEPAGE);
  }
}

}  // namespace qkscope
