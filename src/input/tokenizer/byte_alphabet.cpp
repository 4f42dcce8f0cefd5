#include "input/tokenizer/byte_alphabet.h"

#include <array>

#include "base/core/utf8.h"

namespace qkscope {
namespace {

constexpr char32_t kShifted = 0x100;  // where the unprintable bytes go, in order

constexpr bool is_printable(unsigned byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<char32_t, 256> character{};
  std::array<std::int16_t, kShifted + 256> byte{};  // -1: no byte

  constexpr Alphabet() {
    for (auto& entry : byte) entry = -1;
    char32_t next = kShifted;
    for (unsigned b = 0; b < 256; ++b) {
      character[b] = is_printable(b) ? b : next++;
      byte[character[b]] = static_cast<std::int16_t>(b);
    }
  }
};
constexpr Alphabet kAlphabet;

}  // namespace

char32_t byte_to_character(unsigned char byte) {
  return kAlphabet.character[byte];
}

std::optional<unsigned char> character_to_byte(char32_t character) {
  if (character >= kAlphabet.byte.size() || kAlphabet.byte[character] < 0) return std::nullopt;
  return static_cast<unsigned char>(kAlphabet.byte[character]);
}

std::string to_byte_alphabet(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    utf8::append(text, byte_to_character(static_cast<unsigned char>(byte)));
  }
  return text;
}

bool from_byte_alphabet(std::string_view text, std::string& bytes) {
  bytes.clear();
  for (std::size_t at = 0; at < text.size();) {
    const auto [code, size] = utf8::decode(text.data() + at);
    const auto byte = character_to_byte(code);
    if (!byte) return false;
    bytes.push_back(static_cast<char>(*byte));
    at += size;
  }
  return true;
}

}  // namespace qkscope
