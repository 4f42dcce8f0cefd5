// Statistics of one query: weights p_j = exp(s_j - lse) and sums over keys j, such as the entropy
// -sum p ln p and the mean distance sum p (i - j). Scores, p, bins and units are contiguous arrays
// over keys. Each sum uses 16 interleaved lanes (LaneSums), so that bits do not depend on the
// vector width; lanes beyond the last key add 0. Only the valid lanes of a partial vector are
// loaded and stored; the arrays of add_fixed_point_weights are padded to a multiple of 16 keys.
// Reference: tests/engine/ops/attention_statistics_test.cpp, plain float64 loops.
//
// Online softmax of a panel of queries: with m the old and m' the new maximum of a column,
// p_k = exp(s_k - m'), sum = sum exp(m - m') + sum over k of p_k, z *= exp(m - m'). Scores (keys,
// columns) and z (z_rows, columns) have the column index running fastest; columns do not depend on
// each other. Whole vectors of columns are read and written up to round_up(used, vector width).
// Reference: tests/engine/ops/key_kernels_test.cpp, a scalar loop with std::exp.
#include "engine/ops/key_kernels.h"

#include <algorithm>
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

inline constexpr FloatTag kTag{};

HWY_INLINE FloatVector log_attention_weight(FloatVector scores, HighLowLogSumExp lse) {
  return hn::Sub(hn::Sub(scores, hn::Set(kTag, lse.high)), hn::Set(kTag, lse.low));
}

// Sets lanes beyond the end of a row to 0.
HWY_INLINE FloatVector mask_tail(FloatVector values, AllLanes) {
  return values;
}
HWY_INLINE FloatVector mask_tail(FloatVector values, LaneCount part) {
  return hn::IfThenElseZero(hn::FirstN(kTag, static_cast<std::size_t>(part.count)), values);
}

void compute_attention_weights_kernel(const float* scores, std::int64_t count, HighLowLogSumExp lse,
                                      float* p) {
  for_each_vector(count, [&](std::int64_t i, auto extent) HWY_ATTR {
    store(exp_approx(kTag, log_attention_weight(load(scores + i, extent), lse)), p + i, extent);
  });
}

float sum_vectorized_kernel(const float* x, std::int64_t count) {
  return sum_over_row(x, count);
}

ScoreSegmentSums sum_segment_weights_kernel(const ScoreSegment& segment, HighLowLogSumExp lse,
                                            float* p, std::int32_t* bins) {
  LaneSums mass;
  LaneSums entropy;
  LaneSums distance;
  const auto half_octaves = hn::Set(kTag, -2.0f * 1.44269504088896341f);
  const auto last_bin = hn::Set(kTag, static_cast<float>(kBins - 1));
  const auto lane = hn::Iota(kTag, 0.0f);
  for_each_reduction_step(segment.keys, [&](std::int64_t i, auto extent, std::int64_t v) HWY_ATTR {
    const auto x = log_attention_weight(load(segment.scores + i, extent), lse);
    const auto weight = mask_tail(exp_approx(kTag, x), extent);
    const auto away = hn::Sub(hn::Set(kTag, segment.distance - static_cast<float>(i)), lane);
    mass[v] = hn::Add(mass[v], weight);
    entropy[v] = hn::NegMulAdd(weight, x, entropy[v]);
    distance[v] = hn::MulAdd(weight, away, distance[v]);
    // A NaN score gets a valid bin: last_bin on x86, due to Min's operand order, and 0 on Arm.
    const auto bin = hn::Max(hn::Zero(kTag), hn::Min(hn::Mul(x, half_octaves), last_bin));
    store(weight, p + i, extent);
    store(hn::ConvertTo(hn::RebindToSigned<FloatTag>(), bin), bins + i, extent);
  });
  return {mass.total(), entropy.total(), distance.total()};
}

HWY_INLINE void add_fixed_point_weights(DoubleVector p, std::int64_t* units,
                                        std::int64_t* key_sums) {
  const hn::RebindToSigned<DoubleTag> integers;
  // Adding 1.5 * 2^52 leaves the rounded integer in the low bits of the float64.
  const auto round = hn::Set(DoubleTag(), 0x1.8p52);
  const auto shifted = hn::MulAdd(p, hn::Set(DoubleTag(), 0x1p40), round);
  const auto whole = hn::Sub(hn::BitCast(integers, shifted), hn::BitCast(integers, round));
  hn::StoreU(whole, integers, units);
  hn::StoreU(hn::Add(hn::LoadU(integers, key_sums), whole), integers, key_sums);
}

void add_fixed_point_weights_kernel(const float* p, std::int64_t count, std::int64_t* units,
                                    std::int64_t* key_sums) {
  constexpr std::int64_t kHalf = kFloats / 2;
  for (std::int64_t i = 0; i < count; i += kFloats) {
    const auto weights = hn::LoadU(kTag, p + i);
    add_fixed_point_weights(widen_lower_half(weights), units + i, key_sums + i);
    add_fixed_point_weights(widen_upper_half(weights), units + i + kHalf, key_sums + i + kHalf);
  }
}

KlDivergenceSums compute_kl_divergence_sums_kernel(const float* p, const float* scores,
                                                   const float* replaced, std::int64_t count) {
  const float highest = max_over_row(replaced, count, -std::numeric_limits<float>::infinity());
  const auto top = hn::Set(kTag, highest);
  LaneSums difference;
  LaneSums sum;
  for_each_reduction_step(count, [&](std::int64_t i, auto extent, std::int64_t v) HWY_ATTR {
    const auto other = load(replaced + i, extent);
    const auto change = hn::Sub(load(scores + i, extent), other);
    difference[v] = hn::MulAdd(load(p + i, extent), change, difference[v]);
    const auto weight = exp_of_non_positive(kTag, hn::Sub(other, top));
    sum[v] = hn::Add(sum[v], mask_tail(weight, extent));
  });
  return {difference.total(), highest, sum.total()};
}

// Online softmax update of one vector of columns (queries) of a panel.
class SoftmaxColumns {
 public:
  SoftmaxColumns(const ScorePanel& panel, std::int64_t column)
      : panel_(panel), column_(column), scores_(panel.scores + column) {}

  void update_softmax() const {
    mask_invisible_keys();
    const auto before = hn::LoadU(kTag, panel_.highest + column_);
    const auto highest = highest_score(before);
    // Replaces a maximum of -infinity (no visible key yet) by 0: -infinity minus itself is NaN.
    const auto top = hn::IfThenElse(hn::Eq(highest, minus_infinity()), hn::Zero(kTag), highest);
#pragma GCC unroll 4
    for (std::int64_t key = 0; key < panel_.keys; ++key)
      hn::StoreU(exp_of_non_positive(kTag, hn::Sub(load(key), top)), kTag, scores_at(key));
    const auto rescale = exp_of_non_positive(kTag, hn::Sub(before, top));
    float* sum = panel_.sum + column_;
    hn::StoreU(hn::MulAdd(hn::LoadU(kTag, sum), rescale, sum_of_weights()), kTag, sum);
    hn::StoreU(highest, kTag, panel_.highest + column_);
    if (hn::AllTrue(kTag, hn::Eq(rescale, hn::Set(kTag, 1.0f)))) return;
    float* z = panel_.z + column_;
    for (std::int64_t row = 0; row < panel_.z_rows; ++row, z += panel_.columns)
      hn::StoreU(hn::Mul(hn::LoadU(kTag, z), rescale), kTag, z);
  }

 private:
  static FloatVector minus_infinity() {
    return hn::Set(kTag, -std::numeric_limits<float>::infinity());
  }
  float* scores_at(std::int64_t key) const {
    return scores_ + key * panel_.columns;
  }
  FloatVector load(std::int64_t key) const {
    return hn::LoadU(kTag, scores_at(key));
  }

  void mask_invisible_keys() const {
    const auto first = std::min(panel_.all_first, panel_.keys);
    mask_keys(0, first);
    mask_keys(std::max(first, panel_.all_end), panel_.keys);
  }

  void mask_keys(std::int64_t key, std::int64_t end_key) const {
    const auto first = hn::LoadU(kTag, panel_.first + column_);
    const auto end = hn::LoadU(kTag, panel_.end + column_);
    for (; key < end_key; ++key) {
      const auto here = hn::Set(kTag, static_cast<float>(key));
      const auto masked = hn::Or(hn::Lt(here, first), hn::Ge(here, end));
      hn::StoreU(hn::IfThenElse(masked, minus_infinity(), load(key)), kTag, scores_at(key));
    }
  }

  // Maximum by comparison and selection, because the max instructions of CPUs differ for NaN.
  static FloatVector lane_max(FloatVector a, FloatVector b) {
    return hn::IfThenElse(hn::Lt(a, b), b, a);
  }

  FloatVector highest_score(FloatVector before) const {
    FloatVector largest[4] = {before, before, before, before};
    std::int64_t key = 0;
    for (; key + 4 <= panel_.keys; key += 4)
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) largest[i] = lane_max(largest[i], load(key + i));
    for (; key < panel_.keys; ++key) largest[0] = lane_max(largest[0], load(key));
    return lane_max(lane_max(largest[0], largest[1]), lane_max(largest[2], largest[3]));
  }

  // Adds up 8 of the 16 lanes at a time, as many as fit into the registers of every target.
  FloatVector sum_of_weights() const {
    FloatVector low[8];
    FloatVector high[8];
    sum_lanes(0, low);
    sum_lanes(8, high);
    for (int i = 0; i < 8; ++i) low[i] = hn::Add(low[i], high[i]);
    for (int width = 4; width > 0; width /= 2)
      for (int i = 0; i < width; ++i) low[i] = hn::Add(low[i], low[i + width]);
    return low[0];
  }

  void sum_lanes(std::int64_t first, FloatVector (&sums)[8]) const {
    for (auto& sum : sums) sum = hn::Zero(kTag);
    std::int64_t key = first;
    for (; key + 8 <= panel_.keys; key += kSumLanes)
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) sums[i] = hn::Add(sums[i], load(key + i));
    for (int i = 0; key < panel_.keys && i < 8; ++i, ++key) sums[i] = hn::Add(sums[i], load(key));
  }

  const ScorePanel& panel_;
  std::int64_t column_;
  float* scores_;
};

void update_softmax_kernel(const ScorePanel& panel) {
  for (std::int64_t column = 0; column < panel.used; column += kFloats)
    SoftmaxColumns(panel, column).update_softmax();
}

}  // namespace qkscope::keys::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkscope::keys {

QKSCOPE_EXPORT_KERNEL(void, compute_attention_weights,
                      (const float* scores, std::int64_t keys, HighLowLogSumExp lse, float* p),
                      (scores, keys, lse, p));
QKSCOPE_EXPORT_KERNEL(float, sum_vectorized, (const float* x, std::int64_t count), (x, count));
QKSCOPE_EXPORT_KERNEL(ScoreSegmentSums, sum_segment_weights,
                      (const ScoreSegment& segment, HighLowLogSumExp lse, float* p,
                       std::int32_t* bins),
                      (segment, lse, p, bins));
QKSCOPE_EXPORT_KERNEL(void, add_fixed_point_weights,
                      (const float* p, std::int64_t keys, std::int64_t* units,
                       std::int64_t* key_sums),
                      (p, keys, units, key_sums));
QKSCOPE_EXPORT_KERNEL(KlDivergenceSums, compute_kl_divergence_sums,
                      (const float* p, const float* scores, const float* replaced,
                       std::int64_t keys),
                      (p, scores, replaced, keys));
QKSCOPE_EXPORT_KERNEL(void, update_softmax, (const ScorePanel& panel), (panel));

}  // namespace qkscope::keys
#endif
