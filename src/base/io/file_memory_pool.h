// Memory pool that limits what Arrow allocates for reading one file, in proportion to its size.
#pragma once

#include <cstdint>

#include <arrow/memory_pool.h>
#include <arrow/status.h>

namespace qkscope {

// Bounds the memory that a damaged Parquet file can make Arrow allocate: page headers have no
// checksum, and a page of a few bytes may claim 2 GiB, which Arrow allocates before it decompresses
// the page. The pool must outlive all buffers.
class BoundedMemoryPool : public arrow::ProxyMemoryPool {
 public:
  BoundedMemoryPool(arrow::MemoryPool* pool, std::int64_t file_bytes)
      : ProxyMemoryPool(pool), limit_(kBaseBytes + kBytesPerByte * file_bytes) {}

  arrow::Status Allocate(std::int64_t size, std::int64_t alignment, std::uint8_t** out) override {
    ARROW_RETURN_NOT_OK(check_allocation_limit(size));
    return ProxyMemoryPool::Allocate(size, alignment, out);
  }
  arrow::Status Reallocate(std::int64_t old_size, std::int64_t new_size, std::int64_t alignment,
                           std::uint8_t** memory) override {
    ARROW_RETURN_NOT_OK(check_allocation_limit(new_size - old_size));
    return ProxyMemoryPool::Reallocate(old_size, new_size, alignment, memory);
  }

 private:
  static constexpr std::int64_t kBaseBytes = std::int64_t{64} << 20;
  static constexpr std::int64_t kBytesPerByte = 1000;  // compression of text achieves less

  arrow::Status check_allocation_limit(std::int64_t bytes) const {
    if (bytes <= limit_ - bytes_allocated()) return arrow::Status::OK();
    return arrow::Status::Invalid("it claims ", bytes,
                                  " bytes at once, more than a file of its size");
  }

  std::int64_t limit_;
};

}  // namespace qkscope
