// The inner loops of symmetric_eigen, over matrices whose rows are padded to whole blocks of
// columns. Every element is a chain of fused multiply-adds in a fixed order.
#pragma once

#include <cstdint>
#include <span>

namespace qkscope {

constexpr std::int64_t kEigenBlock = 16;  // columns; rows are padded to a multiple of it

struct PaddedRows {
  double* data = nullptr;
  std::int64_t columns = 0;  // with the padding
  std::int64_t stride = 0;   // from row to row; at least `columns`

  double* row(std::int64_t i) const { return data + i * stride; }
};

// out[i] = row i times v, for rows [first, last) and columns from `column` on, where v must be zero
// between the block's begin and `column` and in the padding.
void rows_times(PaddedRows rows, std::int64_t first, std::int64_t last, std::int64_t column,
                const double* v, double* out);

// Row i minus v[i] w + w[i] v, for rows [first, last) and columns from the block of `column` on.
void subtract_products(PaddedRows rows, std::int64_t first, std::int64_t last, std::int64_t column,
                       const double* v, const double* w);

// Rows [first, last) times the reflection 1 - factor v v^T from the left, in the same columns;
// `sum` (columns) is scratch.
void reflect_columns(PaddedRows rows, std::int64_t first, std::int64_t last, std::int64_t column,
                     const double* v, double factor, double* sum);

// Turns rows top and top - 1, then top - 1 and top - 2, and so on: rotation k makes
// of rows x (upper index) and y: x = cosine x + sine y, y = cosine y - sine x.
void rotate_rows(PaddedRows rows, std::int64_t top, std::span<const double> cosine,
                 std::span<const double> sine);

}  // namespace qkscope
