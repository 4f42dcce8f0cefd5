// Taylor series of the plasticity 4 Phi(z) Phi(-z) around the middles of short cells of z.
#pragma once

namespace qkscope {

inline constexpr int kCellsPerUnit = 64;
inline constexpr int kLastCell = 9;     // cells cover 0 <= z < 9: the function is 5e-19 there
inline constexpr int kSeriesTerms = 8;  // one cache line

// (kLastCell * kCellsPerUnit, kSeriesTerms)
const double* plasticity_series();

}  // namespace qkscope
