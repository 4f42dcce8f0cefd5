#include "capture/run/position_sampler.h"

#include <algorithm>
#include <cmath>

#include "base/numerics/python_random.h"

namespace qkscope {
namespace {

// Finalizer of SplitMix64.
std::uint64_t mix(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ull;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBull;
  return value ^ (value >> 31);
}

std::uint64_t fold(std::uint64_t seed, std::uint64_t value) {
  seed = (seed ^ value) * 0x9E3779B97F4A7C15ull;
  return seed ^ (seed >> 32);
}

void keep_smallest_hashes(std::vector<std::int32_t>& positions, std::uint64_t seed,
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
    : options_(options), buckets_(options) {}

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
  std::int64_t bucket_end = 0;
  float p = 0.0f;
  for (std::int64_t i = 0; i < length; ++i) {
    if (i >= bucket_end) {
      const auto here = bucket(i);
      bucket_end = buckets_.positions(here).end;
      p = probability(here);
    }
    if (options_.type == SamplerType::all || uniform() < p)
      positions.push_back(static_cast<std::int32_t>(i));
  }
  if (options_.max_rows)
    keep_smallest_hashes(positions, seed, static_cast<std::size_t>(*options_.max_rows));
  return positions;
}

}  // namespace qkscope
