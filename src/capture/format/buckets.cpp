#include "capture/format/buckets.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/core/error.h"

namespace qkscope {
namespace {

constexpr int kLastPower = 62;  // 2^62 is the largest power of two that positions are compared with

// floor(log2(n)) as PyTorch computes it in float32: for n >= 2^21 - 1, the logarithm of a number
// just below a power of two is rounded up to an integer.
int floor_log2_float32(std::int64_t n) {
  constexpr std::int64_t kExactBelow = 1 << 20;
  if (n < kExactBelow) return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(n))) - 1;
  const auto exact = std::log2(static_cast<double>(static_cast<float>(n)));
  return static_cast<int>(std::floor(static_cast<float>(exact)));
}

// Smallest n with floor_log2_float32(n) >= power: 2^power, or slightly less due to rounding.
std::int64_t smallest_with_floor_log2(int power) {
  if (power <= 0) return 1;
  std::int64_t below = std::int64_t{1} << (power - 1);
  std::int64_t first = std::int64_t{1} << power;
  while (first - below > 1) {
    const auto middle = below + (first - below) / 2;
    (floor_log2_float32(middle) >= power ? first : below) = middle;
  }
  return first;
}

}  // namespace

std::string_view sampler_type_name(SamplerType type) {
  constexpr std::string_view kNames[] = {"log_uniform", "uniform", "all"};
  return kNames[static_cast<std::size_t>(type)];
}

std::optional<SamplerType> sampler_type_from_name(std::string_view name) {
  for (const auto type : {SamplerType::log_uniform, SamplerType::uniform, SamplerType::all})
    if (name == sampler_type_name(type)) return type;
  return {};
}

PositionBuckets::PositionBuckets(const SamplerOptions& sampler)
    : type_(sampler.type),
      size_(sampler.min_bucket_size),
      smallest_power_(static_cast<int>(
          std::bit_width(static_cast<std::uint64_t>(sampler.min_bucket_size - 1)))) {
  if (size_ < 1) reject("min_bucket_size is {}; expected 1 or more", size_);
}

std::int32_t PositionBuckets::bucket_of(std::int64_t position) const {
  if (type_ == SamplerType::log_uniform)
    return std::max(floor_log2_float32(position + 1), smallest_power_);
  return static_cast<std::int32_t>(position / size_);
}

PositionRange PositionBuckets::positions_of_bucket(std::int32_t bucket) const {
  const std::int64_t number = bucket;
  if (type_ != SamplerType::log_uniform)
    return number < 0 ? PositionRange{} : PositionRange{number * size_, (number + 1) * size_};
  if (bucket < smallest_power_ || bucket >= kLastPower) return {};
  return {bucket == smallest_power_ ? 0 : smallest_with_floor_log2(bucket) - 1,
          smallest_with_floor_log2(bucket + 1) - 1};
}

std::int32_t bucket_of(const SamplerOptions& sampler, std::int64_t position) {
  return translate_exceptions([&] {
    if (position < 0) reject("position is {}; expected 0 or more", position);
    return PositionBuckets(sampler).bucket_of(position);
  });
}

PositionRange positions_of_bucket(const SamplerOptions& sampler, std::int32_t bucket) {
  return translate_exceptions([&] { return PositionBuckets(sampler).positions_of_bucket(bucket); });
}

}  // namespace qkscope
