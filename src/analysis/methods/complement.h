// The part of a head's rows orthogonal to the plane (a, b), and the planes in it that turn.
#pragma once

#include <span>
#include <vector>

#include "analysis/methods/kernels/plane_units.h"
#include "analysis/methods/moments.h"
#include "base/numerics/frequency_search.h"
#include "qkscope/analysis.h"

namespace qkscope {

struct Complement {
  std::vector<double> variance;  // (dim - 2) sums of squares, descending
  Matrix axes;                   // (.., dim), orthonormal, orthogonal to a and b
  // The largest |correlation| with position over axes that span all of it: rounding errors, as a is
  // the only direction that drifts.
  double position_r = 0;
};

// The first principal axes, `wanted` where there are as many, of the pooled rows with `a` and `b`
// removed.
Complement complement_of(const PooledMoments& pooled, std::span<const double> a,
                         std::span<const double> b, std::int64_t wanted);

// What rotating planes are searched with.
struct PlaneSearch {
  FrequencySearch& frequencies;  // over the positions of the queries, then the keys
  const PlaneUnits& units;       // of the same rows, in the order of the frequencies
};

// Axes 2i and 2i+1 as planes, as far as the moments tell: their variance, and that nothing tells
// queries from keys where both have the same mean. The rest is NaN.
std::vector<ComplementPair> complement_shares(const PooledMoments& pooled,
                                              const Complement& complement,
                                              const RotationOptions& options);

// What the rows tell of these planes; `axes` are theirs, two for each.
void search_planes(const CentredRows& queries, const CentredRows& keys, const PooledMoments& pooled,
                   const Matrix& axes, PlaneSearch search, const RotationOptions& options,
                   std::vector<ComplementPair>& planes);

}  // namespace qkscope
