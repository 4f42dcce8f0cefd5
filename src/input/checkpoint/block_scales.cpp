#include "input/checkpoint/block_scales.h"

#include <algorithm>

#include "base/core/convert.h"
#include "base/core/thread_pool.h"

namespace qkscope {

std::vector<std::int64_t> scales_shape(const std::vector<std::int64_t>& shape,
                                       const std::vector<std::int64_t>& block) {
  return {(shape[0] + block[0] - 1) / block[0], (shape[1] + block[1] - 1) / block[1]};
}

Tensor dequantize_float8(ConstTensorView values, ConstTensorView scales,
                         const std::vector<std::int64_t>& block) {
  std::vector<float> factors(static_cast<std::size_t>(scales.size()));
  convert_to_float32(scales, factors);
  const auto width = values.dim(1);
  Tensor result(values.shape());
  parallel_for(values.dim(0), [&](std::int64_t row) {
    float* out = result.data<float>() + row * width;
    convert_to_float32(values.rows(row, row + 1), {out, static_cast<std::size_t>(width)});
    const float* own = factors.data() + row / block[0] * scales.dim(1);
    for (std::int64_t i = 0; i < width; ++i) out[i] *= own[i / block[1]];
  });
  return result;
}

}  // namespace qkscope
