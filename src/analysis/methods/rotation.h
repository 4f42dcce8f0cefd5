// Planar rotation: the direction a along which a head's rows drift with position, the direction b
// that separates queries from keys, and what is left when both are taken away.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "analysis/methods/kernels/plane_units.h"
#include "analysis/methods/moments.h"
#include "base/numerics/frequency_search.h"
#include "qkscope/analysis.h"

namespace qkscope {

// What the moments alone say: a, b and the numbers along them; nothing of the complement, no
// frequencies, no null. `near_b` is the b of a head with nearly the same rows, which is quicker for
// b from eigenvectors.
RotationResult drift_and_separation(const Moments& queries, const Moments& keys,
                                    const PooledMoments& pooled, const RotationOptions& options,
                                    std::span<const double> near_b = {});

// The same with the complement's axes and variances. What needs rows is NaN: frequencies, turning,
// the null, and how well queries and keys are told apart on planes where their means differ.
RotationResult rotation_from_moments(const Moments& queries, const Moments& keys,
                                     const PooledMoments& pooled, const RotationOptions& options);

// What the search for turning planes leaves for the next head: large memory, and all that depends
// on the positions alone, which the heads of a layer share.
class RotationMemory {
 public:
  PlaneUnits& units() { return units_; }
  // Over these positions.
  FrequencySearch& search(std::vector<std::int32_t> positions, FrequencyBand band);

 private:
  PlaneUnits units_;
  std::vector<std::int32_t> positions_;
  FrequencyBand band_;
  std::optional<FrequencySearch> search_;
};

// `memory`: null: its own.
RotationResult planar_rotation(const CentredRows& queries, const CentredRows& keys,
                               const PooledMoments& pooled, const RotationOptions& options,
                               RotationMemory* memory = nullptr);

}  // namespace qkscope
