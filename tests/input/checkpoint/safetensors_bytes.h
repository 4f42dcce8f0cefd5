// Builds safetensors files by hand, including inconsistent ones.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace qkscope {

// Returns the 8-byte little-endian length, the header and the data section.
inline std::string safetensors_bytes(std::uint64_t length, std::string_view header,
                                     std::string_view data = "") {
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>(length >> 8 * i & 0xff);
  return file.append(header).append(data);
}

inline std::string safetensors_bytes(std::string_view header, std::size_t data_size = 0) {
  return safetensors_bytes(header.size(), header, std::string(data_size, '\0'));
}

}  // namespace qkscope
