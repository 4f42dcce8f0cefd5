// Vectors whose first element begins a line of the cache: on x86 a vector register that crosses the
// end of one is read twice.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace qkscope {

template <typename T>
struct LineAllocator {
  using value_type = T;

  LineAllocator() = default;
  template <typename Other>
  LineAllocator(const LineAllocator<Other>&) noexcept {}

  T* allocate(std::size_t count) {
    return static_cast<T*>(::operator new(count * sizeof(T), kLine));
  }
  void deallocate(T* begin, std::size_t) noexcept { ::operator delete(begin, kLine); }

  bool operator==(const LineAllocator&) const { return true; }

 private:
  static constexpr std::align_val_t kLine{64};
};

template <typename T>
using LineVector = std::vector<T, LineAllocator<T>>;

}  // namespace qkscope
