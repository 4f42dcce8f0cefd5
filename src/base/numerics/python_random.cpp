#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>
#include <unordered_set>

#include "base/core/error.h"
#include "base/numerics/random.h"

namespace qkscope {
namespace {

// Seed sequence for std::mt19937 that reproduces init_by_array() of the reference MT19937.
class ArraySeedSequence {
 public:
  using result_type = std::uint32_t;

  explicit ArraySeedSequence(std::vector<std::uint32_t> key) : key_(std::move(key)) {}

  template <typename Iterator>
  void generate(Iterator begin, Iterator end) {
    constexpr std::size_t kWords = std::mt19937::state_size;
    QKSCOPE_ASSERT(static_cast<std::size_t>(end - begin) == kWords);
    std::array<std::uint32_t, kWords> state{};
    state[0] = 19650218u;
    for (std::uint32_t i = 1; i < kWords; ++i)
      state[i] = 1812433253u * xor_with_high_bits(state[i - 1]) + i;

    std::size_t i = 1;
    const auto advance = [&] {
      if (++i < kWords) return;
      state[0] = state[kWords - 1];
      i = 1;
    };
    std::size_t j = 0;
    for (std::size_t step = std::max(kWords, key_.size()); step > 0; --step) {
      state[i] = (state[i] ^ (xor_with_high_bits(state[i - 1]) * 1664525u)) + key_[j] +
                 static_cast<std::uint32_t>(j);
      advance();
      j = (j + 1) % key_.size();
    }
    for (std::size_t step = kWords - 1; step > 0; --step) {
      state[i] = (state[i] ^ (xor_with_high_bits(state[i - 1]) * 1566083941u)) -
                 static_cast<std::uint32_t>(i);
      advance();
    }
    state[0] = 0x80000000u;
    std::copy(state.begin(), state.end(), begin);
  }

 private:
  static std::uint32_t xor_with_high_bits(std::uint32_t word) { return word ^ (word >> 30); }

  std::vector<std::uint32_t> key_;
};

// Python's seeding: the key is |seed| as 32-bit words, least significant first; 0 has one word.
std::mt19937 make_seeded_generator(std::int64_t seed) {
  const auto value = static_cast<std::uint64_t>(seed);
  const auto magnitude = seed < 0 ? 0 - value : value;
  std::vector<std::uint32_t> words = {static_cast<std::uint32_t>(magnitude)};
  if (magnitude >> 32 != 0) words.push_back(static_cast<std::uint32_t>(magnitude >> 32));
  ArraySeedSequence sequence(std::move(words));
  return std::mt19937(sequence);
}

// Returns whether random.sample() draws from a pool of all n numbers instead of tracking a set.
bool uses_pool_sampling(std::uint32_t n, std::uint32_t k) {
  double set_size = 21.0;
  if (k > 5) set_size += std::pow(4.0, std::ceil(std::log(3.0 * k) / std::log(4.0)));
  return n <= set_size;
}

}  // namespace

PythonRandom::PythonRandom(std::int64_t seed) : engine_(make_seeded_generator(seed)) {}

std::uint32_t PythonRandom::getrandbits(int bits) {
  QKSCOPE_ASSERT(bits > 0 && bits <= 32);
  return static_cast<std::uint32_t>(engine_()) >> (32 - bits);
}

std::uint32_t PythonRandom::randbelow(std::uint32_t n) {
  QKSCOPE_ASSERT(n > 0);
  const auto bits = static_cast<int>(std::bit_width(n));
  auto value = getrandbits(bits);
  while (value >= n) value = getrandbits(bits);
  return value;
}

std::vector<std::uint32_t> PythonRandom::sample(std::uint32_t n, std::uint32_t k) {
  QKSCOPE_ASSERT(k <= n);
  std::vector<std::uint32_t> chosen(k);
  if (uses_pool_sampling(n, k)) {
    std::vector<std::uint32_t> pool(n);
    std::iota(pool.begin(), pool.end(), 0u);
    for (std::uint32_t i = 0; i < k; ++i) {
      const auto j = randbelow(n - i);
      chosen[i] = pool[j];
      pool[j] = pool[n - i - 1];  // the last remaining number replaces the drawn one
    }
    return chosen;
  }
  std::unordered_set<std::uint32_t> taken;
  for (auto& number : chosen) {
    do number = randbelow(n);
    while (!taken.insert(number).second);
  }
  return chosen;
}

}  // namespace qkscope
