#include "analysis/methods/kernels/preference_kernels.h"

#include <bit>

#include "base/core/cpu_target.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "analysis/methods/kernels/preference_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace qkscope::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Lanes are groups: four counts, and twice two sums.
void without_kernel(std::span<const std::uint32_t> bits, const std::uint32_t* masks, double prefer,
                    std::span<const double> others, double* sums) {
  const hn::CappedTag<std::uint32_t, kGroupStep> words;
  const hn::Half<decltype(words)> half;
  const hn::Rebind<std::int32_t, decltype(half)> counts;
  const hn::Rebind<double, decltype(half)> d;
  const auto add = [&](auto count, std::size_t group) HWY_ATTR {
    const auto rest = hn::Sub(hn::Set(d, prefer), hn::PromoteTo(d, hn::BitCast(counts, count)));
    const auto against = hn::Sub(hn::LoadU(d, others.data() + group), rest);
    hn::StoreU(hn::MulAdd(rest, against, hn::LoadU(d, sums + group)), d, sums + group);
  };
  for (std::size_t group = 0; group < others.size(); group += kGroupStep) {
    auto count = hn::Zero(words);
    for (std::size_t word = 0; word < bits.size(); ++word) {
      const auto mask = hn::LoadU(words, masks + word * others.size() + group);
      count = hn::Add(count, hn::PopulationCount(hn::And(mask, hn::Set(words, bits[word]))));
    }
    add(hn::LowerHalf(half, count), group);
    add(hn::UpperHalf(half, count), group + kGroupStep / 2);
  }
}

}  // namespace
}  // namespace qkscope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkscope {
namespace {

HWY_EXPORT(without_kernel);

int count_bits(std::span<const std::uint32_t> bits) {
  int count = 0;
  for (const auto word : bits) count += std::popcount(word);
  return count;
}

}  // namespace

void add_products_without(std::span<const std::uint32_t> bits, std::span<const std::uint32_t> masks,
                          std::span<const double> others, std::span<double> sums) {
  QKSCOPE_DISPATCH(without_kernel)(bits, masks.data(), count_bits(bits), others, sums.data());
}

void add_products_without_reference(std::span<const std::uint32_t> bits,
                                    std::span<const std::uint32_t> masks,
                                    std::span<const double> others, std::span<double> sums) {
  for (std::size_t g = 0; g < others.size(); ++g) {
    double rest = count_bits(bits);
    for (std::size_t word = 0; word < bits.size(); ++word)
      rest -= std::popcount(bits[word] & masks[word * others.size() + g]);
    sums[g] += rest * (others[g] - rest);
  }
}

}  // namespace qkscope
#endif
