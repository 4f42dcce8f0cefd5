// Bounds the memory that a reader takes by the size of its file.
#pragma once

#include <cstddef>

namespace qkscope {

// Aborts the process when all live allocations together exceed kBaseBytes plus kBytesPerByte times
// the size of the file. Counts allocations of all threads. At most one MemoryLimit may exist.
class MemoryLimit {
 public:
  // More than the limit of BoundedMemoryPool (base/io), with room for copies.
  static constexpr std::size_t kBaseBytes = std::size_t{128} << 20;
  static constexpr std::size_t kBytesPerByte = 1100;

  explicit MemoryLimit(std::size_t file_bytes);
  ~MemoryLimit();
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;
};

}  // namespace qkscope
