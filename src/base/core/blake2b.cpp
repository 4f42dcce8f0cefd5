#include "base/core/blake2b.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace qkscope {
namespace {

constexpr std::size_t kBlock = 128;  // bytes
constexpr int kRounds = 12;

constexpr std::array<std::uint64_t, 8> kInitial = {
    0x6A09E667F3BCC908, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1,
    0x510E527FADE682D1, 0x9B05688C2B3E6C1F, 0x1F83D9ABFB41BD6B, 0x5BE0CD19137E2179};

constexpr std::uint8_t kOrder[10][16] = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
                                         {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
                                         {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
                                         {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
                                         {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
                                         {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
                                         {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
                                         {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
                                         {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
                                         {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0}};

using State = std::array<std::uint64_t, 8>;

void compress(State& state, const char* block, std::uint64_t bytes_so_far, bool last) {
  std::array<std::uint64_t, 16> words;  // message words are little-endian
  std::memcpy(words.data(), block, kBlock);
  std::array<std::uint64_t, 16> v;
  std::copy(state.begin(), state.end(), v.begin());
  std::copy(kInitial.begin(), kInitial.end(), v.begin() + 8);
  v[12] ^= bytes_so_far;
  if (last) v[14] = ~v[14];
  const auto mix = [&](int a, int b, int c, int d, std::uint64_t x, std::uint64_t y) {
    v[a] += v[b] + x;
    v[d] = std::rotr(v[d] ^ v[a], 32);
    v[c] += v[d];
    v[b] = std::rotr(v[b] ^ v[c], 24);
    v[a] += v[b] + y;
    v[d] = std::rotr(v[d] ^ v[a], 16);
    v[c] += v[d];
    v[b] = std::rotr(v[b] ^ v[c], 63);
  };
  for (int round = 0; round < kRounds; ++round) {
    const auto& s = kOrder[round % 10];
    for (int i = 0; i < 4; ++i) mix(i, i + 4, i + 8, i + 12, words[s[2 * i]], words[s[2 * i + 1]]);
    for (int i = 0; i < 4; ++i) {
      mix(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4, words[s[8 + 2 * i]],
          words[s[9 + 2 * i]]);
    }
  }
  for (std::size_t i = 0; i < 8; ++i) state[i] ^= v[i] ^ v[i + 8];
}

}  // namespace

std::uint64_t blake2b_64(std::string_view message) {
  static_assert(std::endian::native == std::endian::little);
  State state = kInitial;
  state[0] ^= 0x01010000 ^ 8;  // parameter block: no key, 8-byte digest
  std::size_t done = 0;
  for (; message.size() - done > kBlock; done += kBlock) {
    compress(state, message.data() + done, done + kBlock, false);
  }
  std::array<char, kBlock> rest{};
  std::copy(message.begin() + static_cast<std::ptrdiff_t>(done), message.end(), rest.begin());
  compress(state, rest.data(), message.size(), true);
  return state[0];
}

}  // namespace qkscope
