#include "numerics/products.h"

#include <algorithm>

#include "core/cpu_target.h"
#include "core/error.h"
#include "numerics/vectors.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "numerics/products.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "numerics/counts-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkscope::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using Doubles = hn::CappedTag<double, kPanelColumns>;
constexpr int kLanes = hn::MaxLanes(Doubles());
constexpr int kVectors = kPanelColumns / kLanes;  // of a line of eight columns
// As many sums as the registers hold beside a line and a number of the left side.
constexpr int kTileRows = HWY_TARGET == HWY_SSE4 ? 2 : kVectors == 1 ? 12 : 5;

// out (kRows, 8) = left (kRows, depth) panel (depth, 8), all sums in registers. left(row, k) gives
// a number. Not inlined: in a larger function the compiler runs out of registers for the sums.
template <int kRows, typename Left>
HWY_NOINLINE void tile_product(std::int64_t depth, const Left left, const double* panel,
                               double* out) {
  const Doubles d;
  using Vector = hn::Vec<Doubles>;
  Vector sum[kRows][kVectors];
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sum[row][v] = hn::Zero(d);
#pragma GCC unroll 4
  for (std::int64_t k = 0; k < depth; ++k) {
    Vector line[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v)
      line[v] = hn::LoadU(d, panel + k * kPanelColumns + v * kLanes);
#pragma GCC unroll 16
    for (int row = 0; row < kRows; ++row) {
      const Vector number = hn::Set(d, left(row, k));
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sum[row][v] = hn::MulAdd(line[v], number, sum[row][v]);
    }
  }
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v)
      hn::StoreU(sum[row][v], d, out + row * kPanelColumns + v * kLanes);
}

// Calls body(first, height) for tiles that cover `rows`, all about equally high.
template <typename Body>
HWY_INLINE void for_each_tile(std::int64_t rows, const Body& body) {
  for (std::int64_t first = 0; first < rows;) {
    const auto tiles = (rows - first + kTileRows - 1) / kTileRows;
    const auto height = (rows - first + tiles - 1) / tiles;
    with_count<kTileRows>(height, [&](auto tile_rows) HWY_ATTR { body(first, tile_rows); });
    first += height;
  }
}

// Numbers of a row-major matrix as the left side of a product.
struct RowsOf {
  const double* rows;
  std::int64_t stride;
  double operator()(int row, std::int64_t k) const { return rows[row * stride + k]; }
};

// Columns of panels as the rows of the transpose.
template <int kRows>
struct PanelColumns {
  const double* column[kRows];
  double operator()(int row, std::int64_t k) const { return column[row][k * kPanelColumns]; }
};

void panel_product(const double* left, std::int64_t rows, std::int64_t depth, const double* panel,
                   double* out) {
  for_each_tile(rows, [&](std::int64_t first, auto tile_rows) HWY_ATTR {
    tile_product<tile_rows>(depth, RowsOf{left + first * depth, depth}, panel,
                            out + first * kPanelColumns);
  });
}

// out (kRows, columns), rows `out_stride` apart, = left (kRows, depth) times kWidth vectors of
// columns of right (depth, stride), of which the first `columns` are wanted.
template <int kRows, int kWidth>
HWY_NOINLINE void narrow_tile(const double* left, std::int64_t depth, const double* right,
                              std::int64_t stride, std::int64_t columns, double* out,
                              std::int64_t out_stride) {
  const Doubles d;
  using Vector = hn::Vec<Doubles>;
  Vector sum[kRows][kWidth];
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row)
#pragma GCC unroll 8
    for (int v = 0; v < kWidth; ++v) sum[row][v] = hn::Zero(d);
#pragma GCC unroll 2
  for (std::int64_t k = 0; k < depth; ++k, right += stride) {
    Vector line[kWidth];
#pragma GCC unroll 8
    for (int v = 0; v < kWidth; ++v) line[v] = hn::LoadU(d, right + v * kLanes);
#pragma GCC unroll 16
    for (int row = 0; row < kRows; ++row) {
      const Vector number = hn::Set(d, left[row * depth + k]);
#pragma GCC unroll 8
      for (int v = 0; v < kWidth; ++v) sum[row][v] = hn::MulAdd(line[v], number, sum[row][v]);
    }
  }
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row) {
    double all[kWidth * kLanes];
#pragma GCC unroll 8
    for (int v = 0; v < kWidth; ++v) hn::StoreU(sum[row][v], d, all + v * kLanes);
    std::copy_n(all, columns, out + row * out_stride);
  }
}

// Rows of a tile that is kWidth vectors wide: as many as keep the multipliers busy, and as the
// registers hold.
template <int kWidth>
constexpr int narrow_rows() {
  if (HWY_TARGET == HWY_SSE4 || (HWY_ARCH_X86 && kVectors > 1)) return kWidth > 2 ? 2 : 6 / kWidth;
  return kWidth > 2 ? 20 / kWidth : 8;
}

template <int kWidth>
void narrow_strip(const double* left, std::int64_t rows, std::int64_t depth, const double* right,
                  std::int64_t stride, std::int64_t columns, double* out, std::int64_t out_stride) {
  constexpr int kRows = narrow_rows<kWidth>();
  for (std::int64_t first = 0; first < rows; first += kRows)
    with_count<kRows>(rows - first, [&](auto tile_rows) HWY_ATTR {
      narrow_tile<tile_rows, kWidth>(left + first * depth, depth, right, stride, columns,
                                     out + first * out_stride, out_stride);
    });
}

void narrow_product(const double* left, std::int64_t rows, std::int64_t depth, const double* right,
                    std::int64_t stride, std::int64_t columns, double* out) {
  constexpr std::int64_t kTogether = 16;  // rows that stay in the first cache for all columns
  for (std::int64_t first = 0; first < rows; first += kTogether)
    for (std::int64_t column = 0; column < columns; column += kPanelColumns) {
      const auto used = std::min<std::int64_t>(kPanelColumns, columns - column);
      with_count<kVectors>((used + kLanes - 1) / kLanes, [&](auto width) HWY_ATTR {
        narrow_strip<width>(left + first * depth, std::min(kTogether, rows - first), depth,
                            right + column, stride, used, out + first * columns + column, columns);
      });
    }
}

// to += from, eight numbers or as many as are left.
HWY_INLINE void add_panel_row(const double* from, std::int64_t left, double* to) {
  if (left < kPanelColumns) {
    for (std::int64_t c = 0; c < left; ++c) to[c] += from[c];
    return;
  }
#pragma GCC unroll 8
  for (int v = 0; v < kPanelColumns; v += kLanes)
    hn::StoreU(hn::Add(hn::LoadU(Doubles(), to + v), hn::LoadU(Doubles(), from + v)), Doubles(),
               to + v);
}

// Adds the gram matrix of `depth` rows, packed as (n / 8, packed_depth, 8), to the upper triangle.
void gram_of_panels(const double* packed, std::int64_t packed_depth, std::int64_t depth,
                    Matrix& sum) {
  const auto n = sum.cols;
  const auto column = [&](std::int64_t j) {
    return packed + j / kPanelColumns * packed_depth * kPanelColumns + j % kPanelColumns;
  };
  for_each_tile(n, [&](std::int64_t i, auto tile_rows) HWY_ATTR {
    PanelColumns<tile_rows> left;
    for (int row = 0; row < tile_rows; ++row) left.column[row] = column(i + row);
    for (auto j = i / kPanelColumns * kPanelColumns; j < n; j += kPanelColumns) {
      double out[tile_rows * kPanelColumns];
      tile_product<tile_rows>(depth, left, column(j), out);
      for (int row = 0; row < tile_rows; ++row)
        add_panel_row(out + row * kPanelColumns, n - j, sum.row(i + row) + j);
    }
  });
}

// packed (cols / 8, packed_depth, 8) = rows of vectors (.., cols) minus mean, filled up with zeros.
void pack_centred(const float* vectors, std::span<const std::int64_t> rows,
                  std::span<const double> mean, std::int64_t packed_depth, double* packed) {
  const Doubles d;
  const hn::Rebind<float, Doubles> floats;
  const auto cols = std::ssize(mean);
  for (const auto row : rows) {
    const float* const x = vectors + row * cols;
    double* to = packed;
    packed += kPanelColumns;
    std::int64_t j = 0;
    for (; j + kPanelColumns <= cols; j += kPanelColumns, to += packed_depth * kPanelColumns)
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        const auto at = j + v * kLanes;
        hn::StoreU(
            hn::Sub(hn::PromoteTo(d, hn::LoadU(floats, x + at)), hn::LoadU(d, mean.data() + at)), d,
            to + v * kLanes);
      }
    if (j == cols) continue;
    std::fill_n(to, kPanelColumns, 0.0);
    for (; j < cols; ++j) *to++ = x[j] - mean[static_cast<std::size_t>(j)];
  }
}

}  // namespace
}  // namespace qkscope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkscope {
namespace {

HWY_EXPORT(panel_product);
HWY_EXPORT(narrow_product);
HWY_EXPORT(gram_of_panels);
HWY_EXPORT(pack_centred);

// Rows of a gram matrix that are summed before they are added: they stay in the first cache.
constexpr std::int64_t kGramRows = 64;
// Of a panel: not a power of two, so that panels do not share lines of the cache.
constexpr std::int64_t kGramStride = kGramRows + 1;

// Room for such rows, eight columns side by side, so that a tile reads memory in order:
// (panels, kGramStride, 8).
std::vector<double> gram_panels(std::int64_t cols) {
  const auto panels = (cols + kPanelColumns - 1) / kPanelColumns;
  return std::vector<double>(static_cast<std::size_t>(panels * kGramStride * kPanelColumns));
}

// A matrix (depth, columns) cut into panels of eight columns, the last filled up with zeros.
struct PackedColumns {
  std::int64_t depth;
  std::int64_t columns;
  std::vector<double> data;  // (panels, depth, 8)

  PackedColumns(const Matrix& matrix, bool transposed)
      : depth(transposed ? matrix.cols : matrix.rows),
        columns(transposed ? matrix.rows : matrix.cols),
        data(static_cast<std::size_t>((columns + kPanelColumns - 1) / kPanelColumns * depth *
                                      kPanelColumns)) {
    for (std::int64_t column = 0; column < columns; ++column) {
      double* const to = data.data() + column / kPanelColumns * depth * kPanelColumns;
      for (std::int64_t k = 0; k < depth; ++k)
        to[k * kPanelColumns + column % kPanelColumns] =
            transposed ? matrix(column, k) : matrix(k, column);
    }
  }
};

Matrix multiply_packed(const Matrix& left, const PackedColumns& right) {
  Matrix product(left.rows, right.columns);
  constexpr std::int64_t kBlock = 30;  // rows that stay in the first cache for all panels
  double out[kBlock * kPanelColumns];
  for (std::int64_t first = 0; first < left.rows; first += kBlock) {
    const auto rows = std::min(kBlock, left.rows - first);
    for (std::int64_t column = 0; column < right.columns; column += kPanelColumns) {
      multiply_panel(left.row(first), rows, right.depth, right.data.data() + column * right.depth,
                     out);
      const auto used = std::min<std::int64_t>(kPanelColumns, right.columns - column);
      for (std::int64_t row = 0; row < rows; ++row)
        std::copy_n(out + row * kPanelColumns, used, product.row(first + row) + column);
    }
  }
  return product;
}

}  // namespace

void multiply_panel(const double* left, std::int64_t rows, std::int64_t depth, const double* panel,
                    double* out) {
  QKSCOPE_DISPATCH(panel_product)(left, rows, depth, panel, out);
}

void multiply_narrow(const double* left, std::int64_t rows, std::int64_t depth, const double* right,
                     std::int64_t stride, std::int64_t columns, double* out) {
  QKSCOPE_DISPATCH(narrow_product)(left, rows, depth, right, stride, columns, out);
}

Matrix multiply(const Matrix& left, const Matrix& right) {
  QKSCOPE_ASSERT(left.cols == right.rows);
  return multiply_packed(left, PackedColumns(right, false));
}

Matrix multiply_transposed(const Matrix& left, const Matrix& right) {
  QKSCOPE_ASSERT(left.cols == right.cols);
  return multiply_packed(left, PackedColumns(right, true));
}

void add_gram(const double* rows, std::int64_t count, Matrix& sum) {
  const auto n = sum.cols;
  auto packed = gram_panels(n);
  for (std::int64_t begin = 0; begin < count; begin += kGramRows) {
    const auto depth = std::min(kGramRows, count - begin);
    for (std::int64_t k = 0; k < depth; ++k)
      for (std::int64_t j = 0; j < n; j += kPanelColumns)
        std::copy_n(rows + (begin + k) * n + j, std::min<std::int64_t>(kPanelColumns, n - j),
                    packed.data() + j * kGramStride + k * kPanelColumns);
    QKSCOPE_DISPATCH(gram_of_panels)(packed.data(), kGramStride, depth, sum);
  }
}

void add_centred_gram(const float* vectors, std::span<const std::int64_t> rows,
                      std::span<const double> mean, Matrix& sum,
                      std::span<const WeightedSum> weighted) {
  QKSCOPE_ASSERT(sum.cols == std::ssize(mean));
  auto packed = gram_panels(sum.cols);
  for (std::size_t begin = 0; begin < rows.size(); begin += kGramRows) {
    const auto part = rows.subspan(begin, std::min<std::size_t>(kGramRows, rows.size() - begin));
    QKSCOPE_DISPATCH(pack_centred)(vectors, part, mean, kGramStride, packed.data());
    QKSCOPE_DISPATCH(gram_of_panels)(packed.data(), kGramStride, std::ssize(part), sum);
    for (const auto& [weight, total] : weighted)
      for (std::int64_t j = 0; j < sum.cols; j += kPanelColumns) {
        double out[kPanelColumns];
        multiply_panel(weight.data() + begin, 1, std::ssize(part), packed.data() + j * kGramStride,
                       out);
        add_scaled(1,
                   std::span(out).first(std::min<std::size_t>(
                       kPanelColumns, total.size() - static_cast<std::size_t>(j))),
                   total.subspan(static_cast<std::size_t>(j)));
      }
  }
}

std::vector<double> multiply(const Matrix& matrix, std::span<const double> x) {
  QKSCOPE_ASSERT(matrix.cols == std::ssize(x));
  std::vector<double> product(static_cast<std::size_t>(matrix.rows));
  for (std::int64_t i = 0; i < matrix.rows; ++i)
    product[static_cast<std::size_t>(i)] = dot({matrix.row(i), x.size()}, x);
  return product;
}

double quadratic_form(const Matrix& matrix, std::span<const double> x) {
  return dot(multiply(matrix, x), x);
}

}  // namespace qkscope
#endif
