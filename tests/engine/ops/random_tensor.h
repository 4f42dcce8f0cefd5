// Tensors with seeded normally distributed values.
#pragma once

#include <random>

#include "base/core/convert.h"
#include "qkscope/tensor.h"

namespace qkscope {

inline Tensor random_tensor(const Shape& shape, unsigned seed, float spread = 1.0f) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0f, spread);
  Tensor tensor(shape);
  for (std::int64_t i = 0; i < tensor.size(); ++i) tensor.data<float>()[i] = normal(generator);
  return tensor;
}

// Returns a tensor rounded to bfloat16 or float16.
inline Tensor rounded(const Tensor& source, DType dtype) {
  Tensor result(source.shape(), dtype);
  for (std::int64_t i = 0; i < source.size(); ++i) {
    if (dtype == DType::bf16) result.data<Bf16>()[i] = to_bf16(source.data<float>()[i]);
    if (dtype == DType::f16) result.data<Fp16>()[i] = to_fp16(source.data<float>()[i]);
    if (dtype == DType::f32) result.data<float>()[i] = source.data<float>()[i];
  }
  return result;
}

}  // namespace qkscope
