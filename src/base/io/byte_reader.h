// Bounds-checked reads of little-endian numbers and text from the bytes of a file.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/core/error.h"

namespace qkscope {

// Describes an attempt to read past the end of the data.
struct TruncatedRead {
  std::string_view field;   // name of the field for the error message; may be empty
  std::uint64_t wanted;     // bytes
  std::uint64_t offset;     // position of the first wanted byte
  std::uint64_t available;  // bytes from `offset` to the end
};

// A cursor over bytes that may be truncated or damaged. Every read checks its bounds. The bytes
// must outlive the reader and every view that the reader returns.
class ByteReader {
 public:
  static_assert(std::endian::native == std::endian::little);

  // Called for an out-of-bounds read; must throw the file format's error for a truncated file.
  using TruncatedReadCallback = std::function<void(const TruncatedRead&)>;

  ByteReader(std::span<const std::byte> bytes, TruncatedReadCallback on_truncated)
      : bytes_(bytes), on_truncated_(std::move(on_truncated)) {}
  ByteReader(std::string_view bytes, TruncatedReadCallback on_truncated)
      : ByteReader(std::as_bytes(std::span(bytes)), std::move(on_truncated)) {}

  std::uint64_t size() const { return bytes_.size(); }
  std::uint64_t offset() const { return offset_; }  // position of the next read
  std::uint64_t bytes_left() const { return bytes_.size() - offset_; }

  // Returns `count` bytes at `offset` without moving the cursor.
  std::span<const std::byte> bytes_at(std::uint64_t offset, std::uint64_t count,
                                      std::string_view field = {}) const {
    const auto available = offset <= bytes_.size() ? bytes_.size() - offset : 0;
    if (offset > bytes_.size() || count > available) {
      on_truncated_({field, count, offset, available});
      throw_failure("a truncated read of {} bytes at byte {} was not reported", count, offset);
    }
    return bytes_.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(count));
  }
  // Returns the little-endian unsigned integer of `count` <= 8 bytes at `offset`.
  std::uint64_t integer_at(std::uint64_t offset, std::uint64_t count,
                           std::string_view field = {}) const {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes_at(offset, count, field).data(), static_cast<std::size_t>(count));
    return value;
  }

  std::span<const std::byte> read_bytes(std::uint64_t count, std::string_view field = {}) {
    const auto taken = bytes_at(offset_, count, field);
    offset_ += count;
    return taken;
  }
  std::string_view read_text(std::uint64_t count, std::string_view field = {}) {
    const auto taken = read_bytes(count, field);
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }
  // Reads a little-endian unsigned integer of `count` <= 8 bytes and advances the cursor.
  std::uint64_t read_integer(std::uint64_t count, std::string_view field = {}) {
    const auto value = integer_at(offset_, count, field);
    offset_ += count;
    return value;
  }
  template <typename T>
  T read(std::string_view field = {}) {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    std::memcpy(&value, read_bytes(sizeof value, field).data(), sizeof value);
    return value;
  }

 private:
  std::span<const std::byte> bytes_;
  TruncatedReadCallback on_truncated_;
  std::uint64_t offset_ = 0;
};

}  // namespace qkscope
