// The inner loop of every matrix product that must be fast: up to five rows times eight columns,
// with all sums in registers.
#pragma once

#include <cstdint>
#include <type_traits>

#include "analysis/lanes.h"

namespace qkscope {

inline constexpr int kTileRows = 5;
inline constexpr int kTileColumns = 8;

// (kRows, 8)
template <int kRows>
struct Tile {
  static constexpr int kVectors = kTileColumns / kDoubleLanes;
  Doubles sum[kRows][kVectors] = {};

  // Every row begins with these eight numbers.
  void start(const double* numbers) {
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row)
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sum[row][v] = load<Doubles>(numbers + v * kDoubleLanes);
  }

  // sum += left (kRows, depth) right (depth, 8). left(row, k) gives a number; line k of `right`
  // begins at right + k * right_step.
  template <typename Left>
  void add_product(std::int64_t depth, const Left& left, const double* right,
                   std::int64_t right_step) {
#pragma GCC unroll 4
    for (std::int64_t k = 0; k < depth; ++k) {
      Doubles line[kVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v)
        line[v] = load<Doubles>(right + k * right_step + v * kDoubleLanes);
#pragma GCC unroll 8
      for (int row = 0; row < kRows; ++row)
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) sum[row][v] += line[v] * left(row, k);
    }
  }

  // Adds the first numbers of a row, at most `count`.
  void add_to(int row, double* to, std::int64_t count) const {
    double numbers[kTileColumns];
    copy_row(row, numbers);
    const auto used = count < kTileColumns ? count : std::int64_t{kTileColumns};
    for (std::int64_t column = 0; column < used; ++column) to[column] += numbers[column];
  }
  void copy_row(int row, double* to) const {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) store(to + v * kDoubleLanes, sum[row][v]);
  }
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
