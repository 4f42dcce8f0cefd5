#include "base/core/huge_pages.h"

#include <array>
#include <cstddef>
#include <memory>
#include <new>

#include <sys/mman.h>

namespace qkscope {

void ask_for_huge_pages() {
  // Below the 32 MiB from which malloc gives each block a mapping of its own; two of them are about
  // what the analyses of a head take.
  constexpr std::size_t kBytes = std::size_t{30} << 20;
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  std::array<std::unique_ptr<std::byte[]>, 2> blocks;
  for (auto& block : blocks) {
    block.reset(new (std::nothrow) std::byte[kBytes]);
    void* first = block.get();
    auto bytes = kBytes;
    // It is advice: a system that does not take it goes on as before.
    if (block && std::align(kHugePage, kHugePage, first, bytes) != nullptr)
      ::madvise(first, bytes, MADV_HUGEPAGE);
  }
}

}  // namespace qkscope
