// 64-bit hashes: XXH3 checksums, which detect corrupted and replaced files and are not
// cryptographic, and BLAKE2b, for identifiers that Python code computes as well.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace qkscope {

// Incremental checksum of bytes that arrive in pieces.
class Checksum {
 public:
  Checksum();
  ~Checksum();

  void add(std::span<const std::byte> bytes);
  void add(std::string_view text) { add(std::as_bytes(std::span(text))); }
  std::uint64_t value() const;  // checksum of all bytes added so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::uint64_t checksum_of(std::string_view text);

std::string format_checksum(std::uint64_t checksum);  // 16 hexadecimal digits

// Returns a fingerprint of a file's content: its size and a checksum. Files up to 1 GiB are read
// completely. For larger files, the checksum covers the first 16 MiB (the header of a safetensors
// file), 64 KiB of every further 16 MiB, and the last 64 KiB.
std::string file_fingerprint(const std::string& path);

// Returns the BLAKE2b hash (RFC 7693) with an 8-byte digest and no key, little-endian.
std::uint64_t blake2b_64(std::string_view message);

}  // namespace qkscope
