// Fast hash functions for short strings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace qkscope {

inline std::uint64_t mix_bits(std::uint64_t a, std::uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

inline std::uint64_t load_bytes(const char* from, std::size_t count) {
  std::uint64_t word = 0;
  std::memcpy(&word, from, count);
  return word;
}

inline std::uint64_t hash_string(std::string_view text) {
  constexpr std::uint64_t kSeed = 0x9E3779B97F4A7C15u, kStep = 0xD1B54A32D192ED03u;
  std::uint64_t hash = kSeed ^ text.size();
  const char* at = text.data();
  std::size_t left = text.size();
  for (; left >= 8; at += 8, left -= 8) hash = mix_bits(hash ^ load_bytes(at, 8), kStep);
  return mix_bits(hash ^ load_bytes(at, left), kSeed);
}

// Returns the smallest power of two that keeps a hash table of `count` entries at most half full.
inline std::size_t table_size(std::size_t count) {
  std::size_t size = 16;
  while (size < 2 * count) size *= 2;
  return size;
}

}  // namespace qkscope
