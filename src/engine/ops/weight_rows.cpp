#include "engine/ops/weight_rows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "base/core/convert.h"
#include "engine/ops/row_kernels.h"

namespace qkscope {
namespace {

// Converts `count` contiguous values from `offset` on.
void widen_run(const WeightMatrix& matrix, std::int64_t offset, std::int64_t count, float* out) {
  const auto& values = matrix.values;
  const auto size = static_cast<std::int64_t>(dtype_size(values.dtype()));
  widen({values.bytes() + offset * size, values.dtype(), {count}},
        {out, static_cast<std::size_t>(count)});
}

// Matrices stored as (in, out): contiguous values belong to different rows.
void widen_columns(const WeightMatrix& matrix, const WeightPart& part, float* out) {
  thread_local std::vector<float> column;
  const auto step = matrix.values.stride(0);
  const auto run = (part.rows - 1) * step + 1;
  column.resize(static_cast<std::size_t>(run));
  for (std::int64_t i = 0; i < part.depth; ++i) {
    const auto offset = (part.begin + i) * matrix.values.stride(1) + part.first * step;
    widen_run(matrix, offset, run, column.data());
    for (std::int64_t row = 0; row < part.rows; ++row)
      out[row * part.depth + i] = column[static_cast<std::size_t>(row * step)];
  }
}

// E8M0 of OCP Microscaling Formats 1.0: 2^(bits - 127), NaN for 255.
float power_of_two(std::uint8_t bits) {
  constexpr std::uint8_t kNan = 255;
  return bits == kNan ? std::numeric_limits<float>::quiet_NaN()
                      : static_cast<float>(std::ldexp(1.0, bits - 127));
}

// MXFP4: one of 16 values (E2M1) times the power of two of its block of 32, exact in float32.
void widen_mxfp4(const WeightMatrix& matrix, const WeightPart& part, float* out) {
  constexpr std::array kNumbers = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                   -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
  constexpr std::int64_t kBlock = 32;
  const auto bytes_of = [](ConstTensorView values, std::int64_t row) {
    return reinterpret_cast<const std::uint8_t*>(values.bytes()) + row * values.stride(0);
  };
  for (std::int64_t row = part.first; row < part.first + part.rows; ++row) {
    const auto* numbers = bytes_of(matrix.values, row);
    const auto* scales = bytes_of(matrix.block_scales, row);
    for (auto i = part.begin; i < part.begin + part.depth;) {
      const auto end = std::min(part.begin + part.depth, (i / kBlock + 1) * kBlock);
      const float scale = power_of_two(scales[i / kBlock]);
      for (; i < end; ++i) *out++ = scale * kNumbers[(numbers[i / 2] >> (i % 2 * 4)) & 15];
    }
  }
}

}  // namespace

void widen_rows(const WeightMatrix& matrix, const WeightPart& part, float* out) {
  if (matrix.is_mxfp4()) return widen_mxfp4(matrix, part, out);
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
