#include "ops/weight_rows.h"

#include <vector>

#include "core/convert.h"
#include "ops/row_kernels.h"

namespace qkscope {
namespace {

// `count` values that lie side by side, from `offset` on.
void widen_run(const WeightMatrix& matrix, std::int64_t offset, std::int64_t count, float* out) {
  const auto& values = matrix.values;
  const auto size = static_cast<std::int64_t>(dtype_size(values.dtype()));
  widen({values.bytes() + offset * size, values.dtype(), {count}},
        {out, static_cast<std::size_t>(count)});
}

// Stored (in, out): what lies side by side is one value of each row.
void widen_columns(const WeightMatrix& matrix, const WeightPart& part, float* out) {
  thread_local std::vector<float> column;
  column.resize(static_cast<std::size_t>(part.rows));
  for (std::int64_t i = 0; i < part.depth; ++i) {
    const auto offset = (part.begin + i) * matrix.values.stride(1) + part.first;
    widen_run(matrix, offset, part.rows, column.data());
    for (std::int64_t row = 0; row < part.rows; ++row)
      out[row * part.depth + i] = column[static_cast<std::size_t>(row)];
  }
}

}  // namespace

void widen_rows(const WeightMatrix& matrix, const WeightPart& part, float* out) {
  if (matrix.transposed()) {
    widen_columns(matrix, part, out);
  } else {
    for (std::int64_t row = 0; row < part.rows; ++row)
      widen_run(matrix, matrix.row_offset(part.first + row) + part.begin, part.depth,
                out + row * part.depth);
  }
  if (matrix.scale != 1.0f) rows::scale(out, part.rows * part.depth, matrix.scale);
}

}  // namespace qkscope
