// Jackknife sums of the model-free plasticity. Of n queries, k prefer the first key of a pair; one
// pair adds k (n - k). If a group of texts is left out, k_g of whose queries prefer the first key,
// the pair adds r (n_g - r), where r = k - k_g and n_g is the number of queries outside the group.
#pragma once

#include <cstdint>
#include <span>

namespace qkscope {

inline constexpr std::size_t kGroupStep = 4;  // numbers of groups are padded to a multiple
constexpr std::size_t round_up_groups(std::size_t groups) {
  return (groups + kGroupStep - 1) / kGroupStep * kGroupStep;
}

// Adds one pair to sums (groups, padded), which hold whole numbers. bits (words): the queries that
// prefer the first key, 32 per word; masks (words, groups): the queries of each group; others
// (groups): n_g. The padding of `masks` and `others` is 0, that of `sums` arbitrary.
void add_products_without(std::span<const std::uint32_t> bits, std::span<const std::uint32_t> masks,
                          std::span<const double> others, std::span<double> sums);
// The definition as plain loops, against which add_products_without() is tested.
void add_products_without_reference(std::span<const std::uint32_t> bits,
                                    std::span<const std::uint32_t> masks,
                                    std::span<const double> others, std::span<double> sums);

}  // namespace qkscope
