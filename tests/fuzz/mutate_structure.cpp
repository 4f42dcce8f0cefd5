#include "mutate_structure.h"

#include <array>
#include <limits>

#include "mutate_json.h"

namespace qkscope {

std::string mutate_structure(std::string_view input, std::uint64_t seed) {
  if (input.starts_with("PAR1") && input.ends_with("PAR1")) return mutate_parquet(input, seed);
  if (input.starts_with("PK\x03\x04") || input.starts_with('\x80'))
    return mutate_pickle(input, seed);
  return mutate_json(input, seed);
}

std::uint32_t crc32(std::string_view bytes) {
  std::uint32_t crc = ~0U;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xedb88320U : 0U);
  }
  return ~crc;
}

std::int64_t awkward_integer(std::int64_t value, std::uint64_t random) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  constexpr std::array<std::int64_t, 16> kValues = {
      0,     1,          -1,          2,          127,     128,     255,   256,
      65535, 2147483647, -2147483648, 4294967296, 1 << 30, 1 << 20, kMost, -kMost - 1};
  const auto choice = random % (kValues.size() + 8);
  if (choice < kValues.size()) return kValues[choice];
  const auto near = static_cast<std::uint64_t>(value);  // unsigned, because sums may overflow
  const std::uint64_t neighbours[] = {near + 1, near - 1, near * 2,    near / 2,
                                      ~near,    near + 8, near * 1000, near ^ (random >> 40)};
  return static_cast<std::int64_t>(neighbours[choice - kValues.size()]);
}

}  // namespace qkscope
