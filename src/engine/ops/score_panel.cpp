// Kernel of score_panel.h: the online softmax update for one block of keys. With m the old and m'
// the new maximum of a column: p_k = exp(s_k - m'), sum = sum exp(m - m') + sum over k of p_k, z *=
// exp(m - m').
//
// Layout: scores (keys, columns) and z (z_rows, columns) with the column index running fastest.
// Registers: one vector of columns at a time; keys are unrolled by 4, sums by 8 lanes.
// Invariant: each column is independent of the others; the 16 partial sums of a column (key k in
// partial sum k % 16) are added in one fixed order.
// Whole vectors of columns are read and written up to round_up(used, vector width), which is within
// `columns` because panels are a multiple of the vector width.
// Reference: tests/engine/ops/score_panel_test.cpp, a scalar loop with std::exp.
#include "engine/ops/score_panel.h"

#include <algorithm>
#include <limits>

#include "base/core/cpu_target.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/score_panel.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/ops/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkscope::HWY_NAMESPACE {

// Updates one vector of columns of a panel.
class PanelColumns {
 public:
  PanelColumns(const ScorePanel& panel, std::int64_t column)
      : panel_(panel), column_(column), scores_(panel.scores + column) {}

  void update() const {
    mask();
    const auto before = hn::LoadU(kTag, panel_.highest + column_);
    const auto highest = highest_score(before);
    // Before the first visible key any finite value works: -infinity minus it stays -infinity.
    const auto top = hn::IfThenElse(hn::Eq(highest, minus_infinity()), hn::Zero(kTag), highest);
    exponentials(top);
    const auto rescale = exp_of_negative(kTag, hn::Sub(before, top));
    float* sum = panel_.sum + column_;
    hn::StoreU(hn::MulAdd(hn::LoadU(kTag, sum), rescale, sum_of_weights()), kTag, sum);
    hn::StoreU(highest, kTag, panel_.highest + column_);
    if (!hn::AllTrue(kTag, hn::Eq(rescale, hn::Set(kTag, 1.0f)))) scale_z(rescale);
  }

 private:
  static constexpr Floats kTag{};

  static FloatVector minus_infinity() {
    return hn::Set(kTag, -std::numeric_limits<float>::infinity());
  }
  float* at(std::int64_t key) const { return scores_ + key * panel_.columns; }
  FloatVector load(std::int64_t key) const { return hn::LoadU(kTag, at(key)); }

  void mask() const {
    const auto first = std::min(panel_.all_first, panel_.keys);
    mask(0, first);
    mask(std::max(first, panel_.all_end), panel_.keys);
  }

  void mask(std::int64_t key, std::int64_t end_key) const {
    const auto first = hn::LoadU(kTag, panel_.first + column_);
    const auto end = hn::LoadU(kTag, panel_.end + column_);
    for (; key < end_key; ++key) {
      const auto here = hn::Set(kTag, static_cast<float>(key));
      const auto masked = hn::Or(hn::Lt(here, first), hn::Ge(here, end));
      hn::StoreU(hn::IfThenElse(masked, minus_infinity(), load(key)), kTag, at(key));
    }
  }

  // Compares and selects because the max instructions of CPUs differ for NaN.
  static FloatVector larger(FloatVector a, FloatVector b) {
    return hn::IfThenElse(hn::Lt(a, b), b, a);
  }

  FloatVector highest_score(FloatVector before) const {
    FloatVector largest[4] = {before, before, before, before};
    std::int64_t key = 0;
    for (; key + 4 <= panel_.keys; key += 4)
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) largest[i] = larger(largest[i], load(key + i));
    for (; key < panel_.keys; ++key) largest[0] = larger(largest[0], load(key));
    return larger(larger(largest[0], largest[1]), larger(largest[2], largest[3]));
  }

  void exponentials(FloatVector top) const {
#pragma GCC unroll 4
    for (std::int64_t key = 0; key < panel_.keys; ++key)
      hn::StoreU(exp_of_negative(kTag, hn::Sub(load(key), top)), kTag, at(key));
  }

  // Eight sums at a time, which fit into the registers of every target.
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

  void scale_z(FloatVector factor) const {
    float* z = panel_.z + column_;
    for (std::int64_t row = 0; row < panel_.z_rows; ++row, z += panel_.columns)
      hn::StoreU(hn::Mul(hn::LoadU(kTag, z), factor), kTag, z);
  }

  const ScorePanel& panel_;
  std::int64_t column_;
  float* scores_;
};

void update_softmax_kernel(const ScorePanel& panel) {
  for (std::int64_t column = 0; column < panel.used; column += kFloats)
    PanelColumns(panel, column).update();
}

}  // namespace qkscope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkscope {

HWY_EXPORT(update_softmax_kernel);

void update_softmax(const ScorePanel& panel) {
  QKSCOPE_DISPATCH(update_softmax_kernel)(panel);
}

}  // namespace qkscope
#endif
