#include "capture/position_sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>

#include "core/error.h"

namespace qkscope {
namespace {

// The finalizer of SplitMix64.
std::uint64_t mix(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ull;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBull;
  return value ^ (value >> 31);
}

std::uint64_t fold(std::uint64_t seed, std::uint64_t value) {
  seed = (seed ^ value) * 0x9E3779B97F4A7C15ull;
  return seed ^ (seed >> 32);
}

// torch.rand of a CPU generator: MT19937 seeded with the low 32 bits, 24 bits of each draw.
class TorchUniform {
 public:
  explicit TorchUniform(std::uint64_t seed) : engine_(static_cast<std::uint32_t>(seed)) {}

  float operator()() {
    return static_cast<float>(static_cast<std::uint32_t>(engine_()) & 0xFFFFFFu) * 0x1p-24f;
  }

 private:
  std::mt19937 engine_;
};

// floor(log2(n)) as torch has it in float32: just below a large power of two the logarithm rounds
// up to the power (from n = 2^21 - 1 on).
int floor_log2_float32(std::int64_t n) {
  constexpr std::int64_t kExactBelow = 1 << 20;
  if (n < kExactBelow) return std::bit_width(static_cast<std::uint64_t>(n)) - 1;
  const auto exact = std::log2(static_cast<double>(static_cast<float>(n)));
  return static_cast<int>(std::floor(static_cast<float>(exact)));
}

void keep_fewest_hashes(std::vector<std::int32_t>& positions, std::uint64_t seed,
                        std::size_t rows) {
  if (positions.size() <= rows) return;
  const auto before = [seed](std::int32_t a, std::int32_t b) {
    const auto hash_a = mix(seed ^ mix(static_cast<std::uint64_t>(a) + 1));
    const auto hash_b = mix(seed ^ mix(static_cast<std::uint64_t>(b) + 1));
    return hash_a != hash_b ? hash_a < hash_b : a < b;
  };
  const auto cut = positions.begin() + static_cast<std::ptrdiff_t>(rows);
  std::nth_element(positions.begin(), cut, positions.end(), before);
  positions.erase(cut, positions.end());
  std::sort(positions.begin(), positions.end());
}

}  // namespace

std::uint64_t sampling_seed(std::int64_t example_key, std::int64_t layer, char kind) {
  std::uint64_t seed = 0x243F6A8885A308D3ull;
  seed = fold(seed, mix(static_cast<std::uint64_t>(example_key)));
  seed = fold(seed, mix(static_cast<std::uint64_t>(layer)));
  return fold(seed, mix(static_cast<std::uint64_t>(kind)));
}

PositionSampler::PositionSampler(const SamplerOptions& options)
    : options_(options),
      smallest_power_(std::bit_width(static_cast<std::uint64_t>(options.min_bucket_size - 1))) {
  QKSCOPE_ASSERT(options.min_bucket_size > 0);
}

std::int32_t PositionSampler::bucket(std::int64_t position) const {
  if (options_.type == SamplerType::log_uniform)
    return std::max(floor_log2_float32(position + 1), smallest_power_);
  return static_cast<std::int32_t>(position / options_.min_bucket_size);
}

float PositionSampler::probability(std::int32_t bucket) const {
  switch (options_.type) {
    case SamplerType::log_uniform:
      return std::min(1.0f, std::ldexp(static_cast<float>(options_.base_rate), -bucket));
    case SamplerType::uniform:
      return static_cast<float>(
          std::min(1.0, options_.base_rate / static_cast<double>(options_.min_bucket_size)));
    case SamplerType::all:
      return 1.0f;
  }
  return 1.0f;
}

std::vector<std::int32_t> PositionSampler::sample(std::uint64_t seed, std::int64_t length) const {
  std::vector<std::int32_t> positions;
  TorchUniform uniform(seed);
  std::int32_t last_bucket = -1;
  float p = 0.0f;
  for (std::int64_t i = 0; i < length; ++i) {
    if (const auto here = bucket(i); here != last_bucket) {
      last_bucket = here;
      p = probability(here);
    }
    if (options_.type == SamplerType::all || uniform() < p)
      positions.push_back(static_cast<std::int32_t>(i));
  }
  if (options_.max_rows)
    keep_fewest_hashes(positions, seed, static_cast<std::size_t>(*options_.max_rows));
  return positions;
}

}  // namespace qkscope
