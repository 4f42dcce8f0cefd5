// Bounds the memory that a reader takes by the size of its file.
#pragma once

#include <cstddef>

namespace qkscope {

// Aborts the process when a reader of a file of this size allocates more at once than kBaseBytes
// and kBytesPerByte for each byte of the file. Allocations of all threads count. One object at a
// time.
class MemoryLimit {
 public:
  // More than the limit of FileMemoryPool (base/io), with room for copies.
  static constexpr std::size_t kBaseBytes = std::size_t{128} << 20;
  static constexpr std::size_t kBytesPerByte = 1100;

  explicit MemoryLimit(std::size_t file_bytes);
  ~MemoryLimit();
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;
};

}  // namespace qkscope
