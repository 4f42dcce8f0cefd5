// Element types of tensors: their names in files and options, and conversions to and from float32.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "qkscope/tensor.h"

namespace qkscope {

// Dtype names in safetensors headers ("BF16"). Parsing returns nullopt for an unsupported name.
std::string_view safetensors_name(DType dtype);
std::optional<DType> dtype_from_safetensors(std::string_view name);

// Storage names in PyTorch pickles ("torch.FloatStorage"). Parsing returns nullopt for other names.
std::string_view torch_storage_name(DType dtype);
std::optional<DType> dtype_from_torch_storage(std::string_view name);

// Parses float16, fp16, bfloat16, bf16, float32 or fp32. Returns nullopt for any other name.
std::optional<DType> find_compute_dtype(std::string_view name);

inline float to_float(Bf16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

// Converts float32 to bfloat16; rounds to nearest, ties to even; NaN stays NaN.
inline Bf16 to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

float to_float(Fp16 value);
Fp16 to_fp16(float value);      // round to nearest, ties to even
float to_float(Fp8E4m3 value);  // E4M3FN: no infinities, 0x7f and 0xff are NaN

// Converts a contiguous floating-point tensor to float32. `destination` must have the same size.
void convert_to_float32(ConstTensorView source, std::span<float> destination);

}  // namespace qkscope
