// Kernels of key_kernels.h: weights p_j = exp(s_j - lse) of one query and sums over its keys j,
// such as the entropy -sum p ln p, the mean distance sum p (i - j), and fixed-point key sums.
//
// Layout: scores, p, bins and units are contiguous arrays over keys.
// Registers: vectors of kFloats keys; each sum uses 16 interleaved lanes (LaneSums), so that bits
// do not depend on the vector width. Invariant: lanes beyond the last key contribute 0 to every
// sum. Loads and stores of a partial vector touch only its valid lanes, so arrays need no padding.
// add_units is the exception: its arrays are padded to a multiple of 16 keys.
// Reference: tests/engine/ops/attention_statistics_test.cpp compares with plain float64 loops.
#include "engine/ops/key_kernels.h"

#include <limits>

#include "base/core/cpu_target.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/key_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/ops/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkscope::keys::HWY_NAMESPACE {

using namespace qkscope::HWY_NAMESPACE;  // vector_math-inl.h

inline constexpr Floats kTag{};

HWY_INLINE FloatVector log_weight(FloatVector scores, LogSum lse) {
  return hn::Sub(hn::Sub(scores, hn::Set(kTag, lse.high)), hn::Set(kTag, lse.low));
}

// Sets lanes beyond the end of a row to 0.
HWY_INLINE FloatVector mask_tail(FloatVector values, FullVector) {
  return values;
}
HWY_INLINE FloatVector mask_tail(FloatVector values, PartialVector part) {
  return hn::IfThenElseZero(hn::FirstN(kTag, static_cast<std::size_t>(part.count)), values);
}

void weights_kernel(const float* scores, std::int64_t count, LogSum lse, float* p) {
  for_each_vector(count, [&](std::int64_t i, auto extent) HWY_ATTR {
    store(exp_approx(kTag, log_weight(load(scores + i, extent), lse)), p + i, extent);
  });
}

float sum_kernel(const float* x, std::int64_t count) {
  return lane_sum(count, [&](std::int64_t i, auto extent, FloatVector so_far)
                             HWY_ATTR { return hn::Add(so_far, load(x + i, extent)); });
}

HWY_INLINE void store_bins(hn::Vec<hn::RebindToSigned<Floats>> bins, std::int32_t* to, FullVector) {
  hn::StoreU(bins, hn::RebindToSigned<Floats>(), to);
}
HWY_INLINE void store_bins(hn::Vec<hn::RebindToSigned<Floats>> bins, std::int32_t* to,
                           PartialVector part) {
  HWY_ALIGN std::int32_t lanes[kFloats];
  hn::Store(bins, hn::RebindToSigned<Floats>(), lanes);
  std::memcpy(to, lanes, static_cast<std::size_t>(part.count) * sizeof(std::int32_t));
}

SegmentSums weigh_kernel(const Segment& segment, LogSum lse, float* p, std::int32_t* bins) {
  LaneSums mass;
  LaneSums entropy;
  LaneSums distance;
  const auto half_octaves = hn::Set(kTag, -2.0f * 1.44269504088896341f);
  const auto last_bin = hn::Set(kTag, static_cast<float>(kBins - 1));
  const auto lane = hn::Iota(kTag, 0.0f);
  for_each_in_lanes(segment.keys, [&](std::int64_t i, auto extent, std::int64_t v) HWY_ATTR {
    const auto x = log_weight(load(segment.scores + i, extent), lse);
    const auto weight = mask_tail(exp_approx(kTag, x), extent);
    const auto away = hn::Sub(hn::Set(kTag, segment.distance - static_cast<float>(i)), lane);
    mass[v] = hn::Add(mass[v], weight);
    entropy[v] = hn::NegMulAdd(weight, x, entropy[v]);
    distance[v] = hn::MulAdd(weight, away, distance[v]);
    const auto bin = hn::Max(hn::Zero(kTag), hn::Min(last_bin, hn::Mul(x, half_octaves)));
    store(weight, p + i, extent);
    store_bins(hn::ConvertTo(hn::RebindToSigned<Floats>(), bin), bins + i, extent);
  });
  return {mass.total(), entropy.total(), distance.total()};
}

HWY_INLINE void add_units(DoubleVector p, std::int64_t* units, std::int64_t* key_sums) {
  const hn::RebindToSigned<Doubles> integers;
  // Adding 1.5 * 2^52 rounds to an integer in the low bits of the float64.
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
    const auto weights = hn::LoadU(kTag, p + i);
    add_units(lower_doubles(weights), units + i, key_sums + i);
    add_units(upper_doubles(weights), units + i + kHalf, key_sums + i + kHalf);
  }
}

ReplacedSums compare_kernel(const float* p, const float* scores, const float* replaced,
                            std::int64_t count) {
  const float highest = lane_max(replaced, count, -std::numeric_limits<float>::infinity());
  const auto top = hn::Set(kTag, highest);
  LaneSums difference;
  LaneSums sum;
  for_each_in_lanes(count, [&](std::int64_t i, auto extent, std::int64_t v) HWY_ATTR {
    const auto other = load(replaced + i, extent);
    const auto change = hn::Sub(load(scores + i, extent), other);
    difference[v] = hn::MulAdd(load(p + i, extent), change, difference[v]);
    const auto weight = exp_of_negative(kTag, hn::Sub(other, top));
    sum[v] = hn::Add(sum[v], mask_tail(weight, extent));
  });
  return {difference.total(), highest, sum.total()};
}

}  // namespace qkscope::keys::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkscope::keys {

HWY_EXPORT(weights_kernel);
HWY_EXPORT(sum_kernel);
HWY_EXPORT(weigh_kernel);
HWY_EXPORT(add_units_kernel);
HWY_EXPORT(compare_kernel);

void weights(const float* scores, std::int64_t keys, LogSum lse, float* p) {
  QKSCOPE_DISPATCH(weights_kernel)(scores, keys, lse, p);
}

float sum(const float* x, std::int64_t count) {
  return QKSCOPE_DISPATCH(sum_kernel)(x, count);
}

SegmentSums weigh(const Segment& segment, LogSum lse, float* p, std::int32_t* bins) {
  return QKSCOPE_DISPATCH(weigh_kernel)(segment, lse, p, bins);
}

void add_units(const float* p, std::int64_t keys, std::int64_t* units, std::int64_t* key_sums) {
  QKSCOPE_DISPATCH(add_units_kernel)(p, keys, units, key_sums);
}

ReplacedSums compare(const float* p, const float* scores, const float* replaced,
                     std::int64_t keys) {
  return QKSCOPE_DISPATCH(compare_kernel)(p, scores, replaced, keys);
}

}  // namespace qkscope::keys
#endif
