// The inner loop of every matrix product that must be fast: up to five rows times eight columns,
// with all sums in registers.
#pragma once

#include <cstdint>
#include <type_traits>

#include "numerics/lanes.h"

namespace qkscope {

inline constexpr int kTileRows = 5;
inline constexpr int kTileColumns = 8;

// out (kRows, 8) = left (kRows, depth) right (depth, 8). left(row, k) gives a number. Not inlined:
// in a larger function the compiler runs out of registers for the sums.
template <int kRows, typename Left>
[[gnu::noinline]] void tile_product(std::int64_t depth, const Left left, const double* right,
                                    double* out) {
  constexpr int kVectors = kTileColumns / kDoubleLanes;
  Doubles sum[kRows][kVectors] = {};
#pragma GCC unroll 4
  for (std::int64_t k = 0; k < depth; ++k) {
    Doubles line[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v)
      line[v] = load<Doubles>(right + k * kTileColumns + v * kDoubleLanes);
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row)
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sum[row][v] += line[v] * left(row, k);
  }
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v)
      store(out + row * kTileColumns + v * kDoubleLanes, sum[row][v]);
}

// Numbers of a row-major matrix as the left side of a product.
struct RowsOf {
  const double* rows;
  std::int64_t stride;
  double operator()(int row, std::int64_t k) const { return rows[row * stride + k]; }
};

// Calls body(std::integral_constant<int, n>()) and returns n, the height of the next tile when
// `rows` are left: at most five, and all tiles about equally high. A number known only at run time
// becomes one the compiler knows.
template <typename Body>
std::int64_t with_tile_rows(std::int64_t rows, const Body& body) {
  const auto tiles = (rows + kTileRows - 1) / kTileRows;
  switch ((rows + tiles - 1) / tiles) {
    case 1:
      body(std::integral_constant<int, 1>());
      return 1;
    case 2:
      body(std::integral_constant<int, 2>());
      return 2;
    case 3:
      body(std::integral_constant<int, 3>());
      return 3;
    case 4:
      body(std::integral_constant<int, 4>());
      return 4;
    default:
      body(std::integral_constant<int, kTileRows>());
      return kTileRows;
  }
}

}  // namespace qkscope
