// Planar rotation: the direction a along which the rows of a head drift with position, the
// direction b that separates queries from keys, and the complement orthogonal to both.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "analysis/methods/kernels/plane_units.h"
#include "analysis/methods/moments.h"
#include "base/numerics/frequency_search.h"
#include "qkscope/analysis.h"

namespace qkscope {

// Finds drift axis a, separation axis b and results along them from moments; no orthogonal
// complement, frequencies or permutation test. `near_b`: initial vector for b, from a similar head.
RotationResult find_drift_and_separation(const Moments& queries, const Moments& keys,
                                         const PooledMoments& pooled,
                                         const RotationOptions& options,
                                         std::span<const double> near_b = {});

// Like find_drift_and_separation(), plus axes and variances of the complement. Fields that need
// rows are NaN: frequencies, angle_r, permutation test, and separability where means differ.
RotationResult rotation_from_moments(const Moments& queries, const Moments& keys,
                                     const PooledMoments& pooled, const RotationOptions& options);

// Permutation null of the correlations along the drift axis, which is fitted to position: few rows
// in many dimensions correlate with position by chance. Each of options.null_draws draws shuffles
// the positions of queries and of keys separately and refits the axis. The result depends on
// options.seed, not on row order.
PositionNull permutation_null_of_drift(const CentredRows& queries, const CentredRows& keys,
                                       const PooledMoments& pooled, const RotationResult& observed,
                                       const RotationOptions& options);
// Buffers of the plane search, reused between heads, and tables that depend only on positions,
// which all heads of a layer share.
class RotationWorkspace {
 public:
  PlaneUnitVectors& plane_unit_vectors() { return units_; }
  // Returns the frequency search; rebuilds it only when positions or band change.
  FrequencySearch& frequency_search(std::vector<std::int32_t> positions, FrequencyBand band);

 private:
  PlaneUnitVectors units_;
  std::vector<std::int32_t> positions_;
  FrequencyBand band_;
  std::optional<FrequencySearch> search_;
};

// Runs the full analysis on the rows. `memory`: reusable buffers, or null.
RotationResult planar_rotation(const CentredRows& queries, const CentredRows& keys,
                               const PooledMoments& pooled, const RotationOptions& options,
                               RotationWorkspace* memory = nullptr);

}  // namespace qkscope
