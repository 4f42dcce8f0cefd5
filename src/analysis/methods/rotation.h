// Planar rotation: the direction a along which the rows of a head drift with position, the
// direction b that separates queries from keys, their orthogonal complement, and the planes of the
// complement in which the rows rotate with position.
#pragma once

#include <complex>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "analysis/methods/moments.h"
#include "base/core/numbers.h"
#include "base/numerics/frequency_search.h"
#include "base/numerics/matrix.h"
#include "qkscope/analysis.h"

namespace qkscope {

// Normalizes the vectors of each row in four planes: to[stride p + i] is the unit vector of row i
// in plane p. xy (rows, 8): four x, then four y. (0, 0) becomes (1, 0).
void to_unit_vectors(const double* xy, std::int64_t rows, std::complex<double>* to,
                     std::int64_t stride);
// Reference implementation with plain loops, for the test of to_unit_vectors().
void to_unit_vectors_reference(const double* xy, std::int64_t rows, std::complex<double>* to,
                               std::int64_t stride);

// Unit vectors of the projections of rows into planes, and projections onto a line, in one pass.
class PlaneUnitVectors {
 public:
  // Projects rows minus `centre`, reusing the buffers of the previous call. Rows 2i and 2i+1 of
  // `axes` span plane i. A row equal to the centre gets direction (1, 0).
  void project_rows_onto_planes(const Matrix& axes, std::span<const double> line,
                                std::span<const float* const> rows, std::span<const double> centre);

  // Returns the unit vectors of all rows in one plane, as complex numbers.
  std::span<const std::complex<double>> unit_vectors_in_plane(std::int64_t plane) const {
    return std::span(units_).subspan(as_index(plane) * on_line_.size(), on_line_.size());
  }
  std::span<const double> projections_on_line() const { return on_line_; }

 private:
  std::vector<std::complex<double>> units_;  // (4 groups, rows)
  std::vector<double> on_line_;              // (rows)
};

struct OrthogonalComplement {
  std::vector<double> variance;  // (dim - 2): sums of squares along axes, descending
  Matrix axes;                   // (.., dim), orthonormal, orthogonal to a and b
  // Largest |correlation| between position and an axis of the orthogonal complement. It is 0 up to
  // rounding errors, because all linear drift is along the drift axis `a`.
  double position_r = 0;
};

// Returns up to `wanted` principal axes of the pooled rows, orthogonal to directions `a` and `b`.
OrthogonalComplement orthogonal_complement(const PooledMoments& pooled, std::span<const double> a,
                                           std::span<const double> b, std::int64_t wanted);

// Inputs of the search for planes in which the rows of a head rotate with position.
struct PlaneSearchInput {
  FrequencySearch& frequencies;   // for the positions of all queries, then all keys
  const PlaneUnitVectors& units;  // directions of the same rows, in the order of `frequencies`
};

// Returns the planes spanned by axes 2i and 2i+1 with the fields that moments determine: variance
// shares, and separability 0.5 where queries and keys have the same mean. Other fields are NaN.
std::vector<ComplementPair> find_complement_planes(const PooledMoments& pooled,
                                                   const OrthogonalComplement& complement,
                                                   const RotationOptions& options);

// Sets angle_r, omega and separability of each plane from the rows. `axes`: two rows per plane.
void search_plane_rotations(const CentredRows& queries, const CentredRows& keys,
                            const PooledMoments& pooled, const Matrix& axes,
                            PlaneSearchInput search, const RotationOptions& options,
                            std::vector<ComplementPair>& planes);

// Finds the drift axis a, the separation axis b and their statistics from moments; no orthogonal
// complement, frequencies or permutation test. `near_b`: initial vector for b, from a similar head.
RotationResult find_drift_and_separation(const Moments& queries, const Moments& keys,
                                         const PooledMoments& pooled,
                                         const RotationOptions& options,
                                         std::span<const double> near_b = {});

// find_drift_and_separation() and the orthogonal complement from moments alone. NaN without rows:
// frequencies, angle_r, the permutation test, and separability where query and key means differ.
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
  // Returns the frequency search; rebuilds it only if the positions or the frequency band change.
  FrequencySearch& frequency_search(std::vector<std::int32_t> positions, FrequencyBand band);

 private:
  PlaneUnitVectors units_;
  std::vector<std::int32_t> positions_;
  FrequencyBand band_;
  std::optional<FrequencySearch> search_;
};

// Runs the full rotation analysis on the rows of a head. `memory`: reusable buffers, or null.
RotationResult analyze_planar_rotation(const CentredRows& queries, const CentredRows& keys,
                                       const PooledMoments& pooled, const RotationOptions& options,
                                       RotationWorkspace* memory = nullptr);

}  // namespace qkscope
