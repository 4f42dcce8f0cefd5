#include "engine/ops/key_kernels.h"

#include <limits>

#include "base/core/cpu_target.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/key_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/ops/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkscope::HWY_NAMESPACE {

inline constexpr Floats kKeyTag{};

HWY_INLINE FloatVector log_weight(FloatVector scores, keys::LogSum lse) {
  return hn::Sub(hn::Sub(scores, hn::Set(kKeyTag, lse.high)), hn::Set(kKeyTag, lse.low));
}

// Lanes beyond the end of a row are 0.
HWY_INLINE FloatVector within(FloatVector values, Whole) {
  return values;
}
HWY_INLINE FloatVector within(FloatVector values, Part part) {
  return hn::IfThenElseZero(hn::FirstN(kKeyTag, static_cast<std::size_t>(part.count)), values);
}

void key_weights_kernel(const float* scores, std::int64_t count, keys::LogSum lse, float* p) {
  for_each_vector(count, [&](std::int64_t i, auto extent) HWY_ATTR {
    store(exp_approx(kKeyTag, log_weight(load(scores + i, extent), lse)), p + i, extent);
  });
}

float key_sum_kernel(const float* x, std::int64_t count) {
  return lane_sum(count, [&](std::int64_t i, auto extent, FloatVector so_far)
                             HWY_ATTR { return hn::Add(so_far, load(x + i, extent)); });
}

// Sums in 16 interleaved lanes, as lane_sum() has them, for loops with more than one.
class LaneSums {
 public:
  HWY_INLINE LaneSums() {
    for (auto& sum : sums_) sum = hn::Zero(kKeyTag);
  }
  HWY_INLINE FloatVector& operator[](std::int64_t vector) { return sums_[vector]; }
  HWY_INLINE float total() {
#pragma GCC unroll 4
    for (std::int64_t width = kSumVectors / 2; width > 0; width /= 2)
#pragma GCC unroll 4
      for (std::int64_t v = 0; v < width; ++v) sums_[v] = hn::Add(sums_[v], sums_[v + width]);
    return folded(Floats(), sums_[0]);
  }

 private:
  FloatVector sums_[kSumVectors];
};

// body(i, extent, lanes) for each vector of a row; `lanes`: which of LaneSums it adds to.
template <typename Body>
HWY_INLINE void for_each_in_lanes(std::int64_t count, Body body) {
  std::int64_t i = 0;
  for (; i + kSumLanes <= count; i += kSumLanes)
#pragma GCC unroll 4
    for (std::int64_t v = 0; v < kSumVectors; ++v) body(i + v * kFloats, Whole(), v);
  for (std::int64_t v = 0; i < count; ++v, i += kFloats) {
    if (i + kFloats <= count)
      body(i, Whole(), v);
    else
      body(i, Part{count - i}, v);
  }
}

HWY_INLINE void store_bins(hn::Vec<hn::RebindToSigned<Floats>> bins, std::int32_t* to, Whole) {
  hn::StoreU(bins, hn::RebindToSigned<Floats>(), to);
}
HWY_INLINE void store_bins(hn::Vec<hn::RebindToSigned<Floats>> bins, std::int32_t* to, Part part) {
  HWY_ALIGN std::int32_t lanes[kFloats];
  hn::Store(bins, hn::RebindToSigned<Floats>(), lanes);
  std::memcpy(to, lanes, static_cast<std::size_t>(part.count) * sizeof(std::int32_t));
}

keys::SegmentSums weigh_keys_kernel(const keys::Segment& segment, keys::LogSum lse, float* p,
                                    std::int32_t* bins) {
  LaneSums mass;
  LaneSums entropy;
  LaneSums distance;
  const auto half_octaves = hn::Set(kKeyTag, -2.0f * 1.44269504088896341f);
  const auto last_bin = hn::Set(kKeyTag, static_cast<float>(keys::kBins - 1));
  const auto lane = hn::Iota(kKeyTag, 0.0f);
  for_each_in_lanes(segment.keys, [&](std::int64_t i, auto extent, std::int64_t v) HWY_ATTR {
    const auto x = log_weight(load(segment.scores + i, extent), lse);
    const auto weight = within(exp_approx(kKeyTag, x), extent);
    const auto away = hn::Sub(hn::Set(kKeyTag, segment.distance - static_cast<float>(i)), lane);
    mass[v] = hn::Add(mass[v], weight);
    entropy[v] = hn::NegMulAdd(weight, x, entropy[v]);
    distance[v] = hn::MulAdd(weight, away, distance[v]);
    const auto bin = hn::Max(hn::Zero(kKeyTag), hn::Min(last_bin, hn::Mul(x, half_octaves)));
    store(weight, p + i, extent);
    store_bins(hn::ConvertTo(hn::RebindToSigned<Floats>(), bin), bins + i, extent);
  });
  return {mass.total(), entropy.total(), distance.total()};
}

HWY_INLINE void add_half(DoubleVector p, std::int64_t* units, std::int64_t* key_sums) {
  const hn::RebindToSigned<Doubles> integers;
  // Adding it rounds to an integer, which the low bits then hold.
  const auto round = hn::Set(Doubles(), 0x1.8p52);
  const auto shifted = hn::MulAdd(p, hn::Set(Doubles(), 0x1p40), round);
  const auto whole = hn::Sub(hn::BitCast(integers, shifted), hn::BitCast(integers, round));
  hn::StoreU(whole, integers, units);
  hn::StoreU(hn::Add(hn::LoadU(integers, key_sums), whole), integers, key_sums);
}

void add_units_kernel(const float* p, std::int64_t count, std::int64_t* units,
                      std::int64_t* key_sums) {
  constexpr std::int64_t kHalf = kFloats / 2;
  for (std::int64_t i = 0; i < count; i += kFloats) {
    const auto weights = hn::LoadU(kKeyTag, p + i);
    add_half(lower_doubles(weights), units + i, key_sums + i);
    add_half(upper_doubles(weights), units + i + kHalf, key_sums + i + kHalf);
  }
}

keys::ReplacedSums compare_keys_kernel(const float* p, const float* scores, const float* replaced,
                                       std::int64_t count) {
  const float highest = lane_max(replaced, count, -std::numeric_limits<float>::infinity());
  const auto top = hn::Set(kKeyTag, highest);
  LaneSums difference;
  LaneSums sum;
  for_each_in_lanes(count, [&](std::int64_t i, auto extent, std::int64_t v) HWY_ATTR {
    const auto other = load(replaced + i, extent);
    const auto change = hn::Sub(load(scores + i, extent), other);
    difference[v] = hn::MulAdd(load(p + i, extent), change, difference[v]);
    const auto weight = exp_of_negative(kKeyTag, hn::Sub(other, top));
    sum[v] = hn::Add(sum[v], within(weight, extent));
  });
  return {difference.total(), highest, sum.total()};
}

}  // namespace qkscope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkscope::keys {

HWY_EXPORT(key_weights_kernel);
HWY_EXPORT(key_sum_kernel);
HWY_EXPORT(weigh_keys_kernel);
HWY_EXPORT(add_units_kernel);
HWY_EXPORT(compare_keys_kernel);

void weights(const float* scores, std::int64_t keys, LogSum lse, float* p) {
  QKSCOPE_DISPATCH(key_weights_kernel)(scores, keys, lse, p);
}

float sum(const float* x, std::int64_t count) {
  return QKSCOPE_DISPATCH(key_sum_kernel)(x, count);
}

SegmentSums weigh(const Segment& segment, LogSum lse, float* p, std::int32_t* bins) {
  return QKSCOPE_DISPATCH(weigh_keys_kernel)(segment, lse, p, bins);
}

void add_units(const float* p, std::int64_t keys, std::int64_t* units, std::int64_t* key_sums) {
  QKSCOPE_DISPATCH(add_units_kernel)(p, keys, units, key_sums);
}

ReplacedSums compare(const float* p, const float* scores, const float* replaced,
                     std::int64_t keys) {
  return QKSCOPE_DISPATCH(compare_keys_kernel)(p, scores, replaced, keys);
}

}  // namespace qkscope::keys
#endif
