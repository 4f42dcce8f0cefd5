// Checksums of stored bytes (XXH3, 64 bits). They find damage and files that are not what they
// were; against forgers there are no checksums here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace qkscope {

// Of bytes that come piece by piece.
class Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(const Checksum&) = delete;
  Checksum& operator=(const Checksum&) = delete;

  void add(std::span<const std::byte> bytes);
  void add(std::string_view text) { add(std::as_bytes(std::span(text))); }
  std::uint64_t value() const;  // of all bytes so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::uint64_t checksum_of(std::string_view text);

std::string checksum_text(std::uint64_t checksum);  // 16 hexadecimal digits

// What stands for the content of a file: its size and a checksum. A file of up to 1 GiB is read
// whole; of a larger one its first 16 MiB, where a safetensors file has its header, a block of 64
// KiB in every 16 MiB after them, and the last block.
std::string file_fingerprint(const std::string& path);

}  // namespace qkscope
