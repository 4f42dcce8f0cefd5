#include "hub/base64.h"

#include <cstdint>

namespace qkscope {

std::string base64(std::string_view bytes) {
  constexpr char kAlphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const auto group = bytes.substr(i, 3);
    std::uint32_t bits = 0;  // 24 of them: three bytes, or fewer and zeros
    for (std::size_t j = 0; j < 3; ++j)
      bits = bits << 8 | (j < group.size() ? static_cast<unsigned char>(group[j]) : 0U);
    for (std::size_t j = 0; j < 4; ++j)
      text += j <= group.size() ? kAlphabet[bits >> (18 - 6 * j) & 63U] : '=';
  }
  return text;
}

}  // namespace qkscope
