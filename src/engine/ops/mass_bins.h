// The keys of a row counted by the size of their weight.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/core/index.h"
#include "engine/ops/key_kernels.h"

namespace qkscope {

// Counts and mass of a row's keys in bins of half octaves of their weight.
class MassBins {
 public:
  static constexpr std::int32_t kNoKey = keys::kBins;  // takes what is no key of the row
  static constexpr std::int64_t kMostKeys = std::int64_t{1} << 21;

  void clear() { std::fill(std::begin(cells_), std::end(cells_), 0); }

  // A bin is one integer: the mass in units of 2^-40 below, the number of keys above it.
  void add(std::int32_t bin, std::int64_t units) { cells_[bin] += units + kOneKey; }

  // Ends of what the bins allow.
  struct Bracket {
    double low;
    double high;
  };

 private:
  friend class BinnedMass;

  static constexpr int kMassBits = keys::kUnitBits + 2;  // the weights of a row add up to 1
  static constexpr std::int64_t kOneKey = std::int64_t{1} << kMassBits;

  std::int64_t cells_[keys::kBins + 1] = {};
};

// How many keys hold a share of the mass and how much the largest keys hold, from the bins of a
// row: the ends of what is possible.
class BinnedMass {
 public:
  explicit BinnedMass(const MassBins& bins) {
    constexpr double kUnit = 1.0 / static_cast<double>(std::int64_t{1} << keys::kUnitBits);
    for (std::size_t b = 0; b < keys::kBins; ++b) {
      const auto cell = bins.cells_[b];
      const double count = static_cast<double>(cell >> MassBins::kMassBits);
      const double mass = static_cast<double>(cell & (MassBins::kOneKey - 1)) * kUnit;
      keys_[b + 1] = keys_[b] + count;
      held_[b + 1] = held_[b] + mass;
    }
  }

  MassBins::Bracket keys_of_share(double share) const {
    const auto b = first_with(held_, share);
    if (b == keys::kBins) return {keys_[b], keys_[b]};
    const double missing = share - held_[b];
    const double most = keys_[b + 1] - keys_[b];
    // At least this many if all were as large as the bin allows; and never more than if those
    // taken first, the largest, were only average.
    const double average = (held_[b + 1] - held_[b]) / most;
    const double high = keys_[b] + std::min(most, std::max(1.0, std::ceil(missing / average)));
    return {std::min(high, keys_[b] + std::max(1.0, std::ceil(missing / upper(b)))), high};
  }

  MassBins::Bracket mass_of_top(std::int64_t top) const {
    const auto b = first_with(keys_, static_cast<double>(top));
    if (b == keys::kBins) return {held_[b], held_[b]};
    const double taken = static_cast<double>(top) - keys_[b];
    const double mass = held_[b + 1] - held_[b];
    const double part = mass * taken / (keys_[b + 1] - keys_[b]);
    return {held_[b] + part, held_[b] + std::max(part, std::min(mass, taken * upper(b)))};
  }

 private:
  // The bin with which `sums` reach a value; the number of bins where they do not.
  static std::size_t first_with(const double (&sums)[keys::kBins + 1], double value) {
    std::size_t b = 0;
    while (b < keys::kBins && sums[b + 1] < value) ++b;
    return b;
  }
  static double upper(std::size_t bin) { return std::exp2(-0.5 * static_cast<double>(bin)); }

  double keys_[keys::kBins + 1] = {};  // in the bins before
  double held_[keys::kBins + 1] = {};  // mass of those
};

}  // namespace qkscope
