// SIMD loops of symmetric_eigen.cpp over matrices with padded rows. Every element is a chain of
// fused multiply-adds in a fixed order.
#pragma once

#include <cstdint>
#include <span>

namespace qkscope {

constexpr std::int64_t kEigenBlock = 16;  // rows are padded to a multiple of this many columns

struct PaddedRows {
  double* data = nullptr;
  std::int64_t columns = 0;  // including padding
  std::int64_t stride = 0;   // numbers from row to row, at least `columns`

  double* row(std::int64_t i) const { return data + i * stride; }
};

// Matrix-vector product: out[i] = row i . v for rows [first, last) and columns >= `column`. Whole
// blocks of kEigenBlock columns are read, so v must be zero in the padding and in the elements
// before `column` in the same block.
void multiply_rows_by_vector(PaddedRows rows, std::int64_t first, std::int64_t last,
                             std::int64_t column, const double* v, double* out);

// Rank-2 update: row i -= v[i] w + w[i] v for rows [first, last) and all columns from the start of
// the block of kEigenBlock columns that contains `column`.
void subtract_outer_products(PaddedRows rows, std::int64_t first, std::int64_t last,
                             std::int64_t column, const double* v, const double* w);

// Applies the reflection 1 - factor v v^T from the left to rows [first, last), for all columns from
// the start of the block of kEigenBlock columns that contains `column`. `sum` (columns) is scratch
// space.
void reflect_columns(PaddedRows rows, std::int64_t first, std::int64_t last, std::int64_t column,
                     const double* v, double factor, double* sum);

// Givens rotations of rows (top, top - 1), (top - 1, top - 2), ...: rotation k sets x = c x + s y
// and y = c y - s x for the row x with the higher index and the row y with the lower one.
void apply_givens_rotations(PaddedRows rows, std::int64_t top, std::span<const double> cosine,
                            std::span<const double> sine);

}  // namespace qkscope
