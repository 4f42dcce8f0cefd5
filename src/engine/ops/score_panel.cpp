#include "engine/ops/score_panel.h"

#include <algorithm>
#include <limits>

#include "base/core/cpu_target.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/score_panel.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/ops/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkscope::HWY_NAMESPACE {

// One vector of columns of a panel.
class PanelColumns {
 public:
  PanelColumns(const ScorePanel& panel, std::int64_t column)
      : panel_(panel), column_(column), scores_(panel.scores + column) {}

  void weigh() const {
    hide();
    const auto before = hn::LoadU(kTag, panel_.highest + column_);
    const auto highest = highest_score(before);
    // Where no key was seen yet, any other number does: -infinity minus it is -infinity.
    const auto top = hn::IfThenElse(hn::Eq(highest, minus_infinity()), hn::Zero(kTag), highest);
    exponentials(top);
    const auto kept = exp_of_negative(kTag, hn::Sub(before, top));
    float* sum = panel_.sum + column_;
    hn::StoreU(hn::MulAdd(hn::LoadU(kTag, sum), kept, sum_of_weights()), kTag, sum);
    hn::StoreU(highest, kTag, panel_.highest + column_);
    if (!hn::AllTrue(kTag, hn::Eq(kept, hn::Set(kTag, 1.0f)))) scale_z(kept);
  }

 private:
  static constexpr Floats kTag{};

  static FloatVector minus_infinity() {
    return hn::Set(kTag, -std::numeric_limits<float>::infinity());
  }
  float* at(std::int64_t key) const { return scores_ + key * panel_.columns; }
  FloatVector load(std::int64_t key) const { return hn::LoadU(kTag, at(key)); }

  void hide() const {
    const auto first = std::min(panel_.all_first, panel_.keys);
    hide(0, first);
    hide(std::max(first, panel_.all_end), panel_.keys);
  }

  void hide(std::int64_t key, std::int64_t end_key) const {
    const auto first = hn::LoadU(kTag, panel_.first + column_);
    const auto end = hn::LoadU(kTag, panel_.end + column_);
    for (; key < end_key; ++key) {
      const auto here = hn::Set(kTag, static_cast<float>(key));
      const auto hidden = hn::Or(hn::Lt(here, first), hn::Ge(here, end));
      hn::StoreU(hn::IfThenElse(hidden, minus_infinity(), load(key)), kTag, at(key));
    }
  }

  // Compared and chosen: the maximum instructions of CPUs differ where a value is NaN.
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
    std::int64_t key = 0;
    for (; key + 4 <= panel_.keys; key += 4)
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) exponential(key + i, top);
    for (; key < panel_.keys; ++key) exponential(key, top);
  }

  void exponential(std::int64_t key, FloatVector top) const {
    hn::StoreU(exp_of_negative(kTag, hn::Sub(load(key), top)), kTag, at(key));
  }

  // Eight lanes at a time: registers hold no more on every target.
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

void weigh_panel_kernel(const ScorePanel& panel) {
  for (std::int64_t column = 0; column < panel.used; column += kFloats)
    PanelColumns(panel, column).weigh();
}

}  // namespace qkscope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkscope {

HWY_EXPORT(weigh_panel_kernel);

void weigh(const ScorePanel& panel) {
  QKSCOPE_DISPATCH(weigh_panel_kernel)(panel);
}

}  // namespace qkscope
#endif
