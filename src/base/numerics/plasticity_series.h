// Taylor series of the plasticity 4 Phi(z) Phi(-z) around equally spaced nodes.
#pragma once

namespace qkscope {

inline constexpr int kNodesPerUnit = 64;
inline constexpr int kLastNode = 9;     // nodes cover 0 <= z <= 9; the plasticity is 5e-19 at 9
inline constexpr int kSeriesTerms = 8;  // one cache line

// Returns the Taylor coefficients, shape (kLastNode * kNodesPerUnit + 1, kSeriesTerms).
const double* plasticity_series();

}  // namespace qkscope
