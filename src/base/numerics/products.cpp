// Matrix products by register tiles. A tile holds the sums of a few rows times eight columns (or,
// for few columns, one to a few vectors of columns) in registers and runs over the inner
// dimension. There are three kinds:
// - Panel products: the right operand is packed into panels of eight columns.
// - Products with few columns: float32, both operands are unpacked.
//   multiply_few_columns_reference() in reference.h is the plain version.
// - Gram matrices: 64 rows at a time are packed into panels that serve as both operands.
//
// Invariant: an element is sum = fma(left, right, sum) for k = 0, 1, ...; tile sizes may be changed
// freely without changing a bit. Tile sizes per target fill the vector registers and keep enough
// independent sums to hide the latency of the multiply-adds.
//
// Writes past a row: a product with few columns stores whole vectors, and so overwrites up to
// kFewColumnsPadding numbers past the last column. These belong to the next row of `out`, which is
// stored later, because rows are computed in ascending order and the last columns of a row first;
// after the last row the caller provides the space.
#include "base/numerics/products.h"

#include <algorithm>

#include "base/core/cpu_target.h"
#include "base/core/error.h"
#include "base/numerics/matrix.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "base/numerics/products.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "base/numerics/kernel_helpers-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkscope::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using Doubles = hn::CappedTag<double, kPanelColumns>;
constexpr int kLanes = hn::MaxLanes(Doubles());
constexpr int kVectors = kPanelColumns / kLanes;  // per eight columns
using Vector = hn::Vec<Doubles>;
// Rows per tile; a divisor of eight.
constexpr int kTileRows = HWY_TARGET == HWY_SSE4 ? 2 : kVectors == 1 ? 8 : 4;

// Left operand of a matrix product: `step` is the stride between the elements of a row, `apart` the
// stride between rows. Passed by reference: a copy causes a store-forwarding stall on x86.
struct LeftOperandRows {
  const double* first;
  std::int64_t step;
  std::int64_t apart;
};

// Matrix product of a tile: sum (kRows, 8) = left (kRows, depth) panel (depth, 8), in registers.
template <int kRows>
HWY_INLINE void multiply_panel_tile(std::int64_t depth, const LeftOperandRows& left,
                                    const double* panel, Vector (&sum)[kRows][kVectors]) {
  const Doubles d;
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sum[row][v] = hn::Zero(d);
  const auto [first, step, apart] = left;
  const double* column = first;  // element k of the first row
#pragma GCC unroll 2
  for (std::int64_t k = 0; k < depth; ++k, column += step) {
    Vector line[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v)
      line[v] = hn::LoadU(d, panel + k * kPanelColumns + v * kLanes);
#pragma GCC unroll 16
    for (int row = 0; row < kRows; ++row) {
      const Vector number = hn::Set(d, column[row * apart]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sum[row][v] = hn::MulAdd(line[v], number, sum[row][v]);
    }
  }
}

// Matrix product of a tile: out (kRows, 8) = left (kRows, depth) panel (depth, 8). Functions that
// compute a tile are not inlined: in a larger function the compiler would spill the sums.
template <int kRows>
HWY_NOINLINE void gemm_tile(std::int64_t depth, const LeftOperandRows& left, const double* panel,
                            double* out) {
  Vector sum[kRows][kVectors];
  multiply_panel_tile<kRows>(depth, left, panel, sum);
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v)
      hn::StoreU(sum[row][v], Doubles(), out + row * kPanelColumns + v * kLanes);
}

void multiply_panel_kernel(const double* left, std::int64_t rows, std::int64_t depth,
                           const double* panel, double* out) {
  std::int64_t row = 0;
  for (; row + kTileRows <= rows; row += kTileRows)
    gemm_tile<kTileRows>(depth, {left + row * depth, 1, depth}, panel, out + row * kPanelColumns);
  for (; row < rows; ++row)
    gemm_tile<1>(depth, {left + row * depth, 1, depth}, panel, out + row * kPanelColumns);
}

using Floats = hn::CappedTag<float, kFewColumnsPadding>;
using FloatVector = hn::Vec<Floats>;
constexpr int kFloatLanes = hn::MaxLanes(Floats());
constexpr int kFloatVectors = kFewColumnsPadding / kFloatLanes;  // per strip of columns

// Computes a register tile of out = left right: kRows rows by kWidth SIMD vectors of columns. left
// is (kRows, depth); rows of right and out are `stride` and `out_stride` elements apart.
template <int kRows, int kWidth>
HWY_NOINLINE void multiply_few_columns_tile(const float* left, std::int64_t depth,
                                            const float* right, std::int64_t stride, float* out,
                                            std::int64_t out_stride) {
  const Floats d;
  FloatVector sum[kRows][kWidth];
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row)
#pragma GCC unroll 8
    for (int v = 0; v < kWidth; ++v) sum[row][v] = hn::Zero(d);
#pragma GCC unroll 2
  for (std::int64_t k = 0; k < depth; ++k, right += stride) {
    FloatVector line[kWidth];
#pragma GCC unroll 8
    for (int v = 0; v < kWidth; ++v) line[v] = hn::LoadU(d, right + v * kFloatLanes);
#pragma GCC unroll 16
    for (int row = 0; row < kRows; ++row) {
      const FloatVector number = hn::Set(d, left[row * depth + k]);
#pragma GCC unroll 8
      for (int v = 0; v < kWidth; ++v) sum[row][v] = hn::MulAdd(line[v], number, sum[row][v]);
    }
  }
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row, out += out_stride)
#pragma GCC unroll 8
    for (int v = 0; v < kWidth; ++v) hn::StoreU(sum[row][v], d, out + v * kFloatLanes);
}

// Accumulators per tile of a product with few columns, chosen for 16 registers (SSE4, AVX2) or 32
// registers (AVX-512, NEON).
constexpr int kFewColumnsSums = HWY_ARCH_X86 && kVectors > 1 ? 6 : 20;

template <int kWidth>
void multiply_narrow_strip(const float* left, std::int64_t rows, std::int64_t depth,
                           const float* right, std::int64_t stride, float* out,
                           std::int64_t out_stride) {
  constexpr int kRows = std::clamp(kFewColumnsSums / kWidth, 2, 8);
  for (std::int64_t first = 0; first < rows; first += kRows)
    call_with_compile_time_count<kRows>(rows - first, [&](auto tile_rows) HWY_ATTR {
      multiply_few_columns_tile<tile_rows, kWidth>(left + first * depth, depth, right, stride,
                                                   out + first * out_stride, out_stride);
    });
}

// The last vector of a row overwrites the first numbers of the next row. Rows are computed in
// ascending and column strips in descending order, so the correct numbers are stored last.
void multiply_few_columns_kernel(const float* left, std::int64_t rows, std::int64_t depth,
                                 const float* right, std::int64_t stride, std::int64_t columns,
                                 float* out) {
  constexpr std::int64_t kCacheRows = 16;  // rows that stay in the L1 cache for all columns
  const auto vectors = (columns + kFloatLanes - 1) / kFloatLanes;
  const auto strips = (vectors + kFloatVectors - 1) / kFloatVectors;  // of nearly equal width
  for (std::int64_t first = 0; first < rows; first += kCacheRows)
    for (auto strip = strips - 1; strip >= 0; --strip) {
      const auto begin = vectors * strip / strips;
      const auto column = begin * kFloatLanes;
      call_with_compile_time_count<kFloatVectors>(
          vectors * (strip + 1) / strips - begin, [&](auto width) HWY_ATTR {
            multiply_narrow_strip<width>(left + first * depth, std::min(kCacheRows, rows - first),
                                         depth, right + column, stride,
                                         out + first * columns + column, columns);
          });
    }
}

// Adds one tile of the Gram matrix, at (i, j), to `sum`; clips the tile at the matrix edges.
HWY_INLINE void add_gram_tile(std::int64_t depth, const LeftOperandRows& left, const double* panel,
                              std::int64_t i, std::int64_t j, Matrix& sum) {
  const auto rows = std::min<std::int64_t>(kTileRows, sum.rows - i);
  const auto columns = std::min<std::int64_t>(kPanelColumns, sum.cols - j);
  double out[kTileRows * kPanelColumns];
  gemm_tile<kTileRows>(depth, left, panel, out);
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t c = 0; c < columns; ++c) sum(i + row, j + c) += out[row * kPanelColumns + c];
}

// Adds the Gram matrix of `depth` packed rows (n / 8, packed_depth, 8) to sum's upper triangle.
void add_panel_gram(const double* packed, std::int64_t packed_depth, std::int64_t depth,
                    Matrix& sum) {
  constexpr std::int64_t kCacheColumns = 4 * kPanelColumns;  // columns that stay in the L1 cache
  const auto n = sum.cols;
  const auto panel_of = [&](std::int64_t j) { return packed + j * packed_depth; };
  for (std::int64_t begin = 0; begin < n; begin += kCacheColumns) {
    const auto end = std::min(begin + kCacheColumns, n);
    for (std::int64_t i = 0; i < end; i += kTileRows) {
      const auto first = i / kPanelColumns * kPanelColumns;
      const LeftOperandRows left{panel_of(first) + (i - first), kPanelColumns, 1};
      for (auto j = std::max(begin, first); j < end; j += kPanelColumns)
        add_gram_tile(depth, left, panel_of(j), i, j, sum);
    }
  }
}

}  // namespace
}  // namespace qkscope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkscope {
namespace {

HWY_EXPORT(multiply_panel_kernel);
HWY_EXPORT(multiply_few_columns_kernel);
HWY_EXPORT(add_panel_gram);

// Rows per packed block of a Gram matrix; a block stays in the L1 cache.
constexpr std::int64_t kGramRows = 64;
// Row capacity of a panel: not a power of two, which would map all panels to the same cache sets.
constexpr std::int64_t kGramStride = kGramRows + 1;

CacheAlignedVector<double> allocate_gram_panels(std::int64_t cols) {
  const auto panels = (cols + kPanelColumns - 1) / kPanelColumns;
  return CacheAlignedVector<double>(as_index(panels * kGramStride * kPanelColumns));
}

// Adds the Gram matrix of at most kGramRows rows; `packed` is scratch space from
// allocate_gram_panels().
void add_gram_block(const double* rows, std::int64_t count, double* packed, Matrix& sum) {
  const auto n = sum.cols;
  for (std::int64_t k = 0; k < count; ++k)
    for (std::int64_t j = 0; j < n; j += kPanelColumns)
      std::copy_n(rows + k * n + j, std::min<std::int64_t>(kPanelColumns, n - j),
                  packed + j * kGramStride + k * kPanelColumns);
  QKSCOPE_DISPATCH(add_panel_gram)(packed, kGramStride, count, sum);
}

// A matrix (depth, columns) packed into panels of eight columns, padded with zeros.
struct PackedColumns {
  std::int64_t depth;
  std::int64_t columns;
  CacheAlignedVector<double> data;  // (panels, depth, 8)

  PackedColumns(const Matrix& matrix, bool transposed)
      : depth(transposed ? matrix.cols : matrix.rows),
        columns(transposed ? matrix.rows : matrix.cols),
        data(as_index((columns + kPanelColumns - 1) / kPanelColumns * depth * kPanelColumns)) {
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
  constexpr std::int64_t kBlock = 32;  // rows that stay in the L1 cache for all panels
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
  QKSCOPE_DISPATCH(multiply_panel_kernel)(left, rows, depth, panel, out);
}

void multiply_few_columns(const float* left, std::int64_t rows, std::int64_t depth,
                          const float* right, std::int64_t stride, std::int64_t columns,
                          float* out) {
  QKSCOPE_DISPATCH(multiply_few_columns_kernel)(left, rows, depth, right, stride, columns, out);
}

Matrix multiply(const Matrix& left, const Matrix& right) {
  QKSCOPE_ASSERT(left.cols == right.rows);
  return multiply_packed(left, PackedColumns(right, false));
}

Matrix multiply_by_transpose(const Matrix& left, const Matrix& right) {
  QKSCOPE_ASSERT(left.cols == right.cols);
  return multiply_packed(left, PackedColumns(right, true));
}

void add_gram(const double* rows, std::int64_t count, Matrix& sum) {
  auto packed = allocate_gram_panels(sum.cols);
  for (std::int64_t begin = 0; begin < count; begin += kGramRows)
    add_gram_block(rows + begin * sum.cols, std::min(kGramRows, count - begin), packed.data(), sum);
}

void add_centred_gram_and_sums(const float* vectors, std::span<const std::int64_t> rows,
                               std::span<const double> mean, Matrix& sum,
                               std::span<const WeightedRowSum> weighted) {
  QKSCOPE_ASSERT(sum.cols == std::ssize(mean));
  auto packed = allocate_gram_panels(sum.cols);
  Matrix centred(kGramRows, sum.cols);
  for (std::size_t begin = 0; begin < rows.size(); begin += kGramRows) {
    const auto count = std::min(kGramRows, std::ssize(rows) - static_cast<std::int64_t>(begin));
    for (std::int64_t k = 0; k < count; ++k)
      centre_rows(vectors + rows[begin + as_index(k)] * sum.cols, 1, mean, centred.row(k));
    add_gram_block(centred.row(0), count, packed.data(), sum);
    for (const auto& [weight, total] : weighted) {
      std::vector<double> of_block(mean.size());
      for (std::int64_t k = 0; k < count; ++k)
        add_scaled(weight[begin + as_index(k)], {centred.row(k), mean.size()}, of_block);
      add_scaled(1, of_block, total);
    }
  }
}

std::vector<double> multiply(const Matrix& matrix, std::span<const double> x) {
  QKSCOPE_ASSERT(matrix.cols == std::ssize(x));
  std::vector<double> product(as_index(matrix.rows));
  compute_row_dots(matrix.data.data(), matrix.rows, x, product.data());
  return product;
}

double quadratic_form(const Matrix& matrix, std::span<const double> x) {
  return dot(multiply(matrix, x), x);
}

}  // namespace qkscope
#endif
