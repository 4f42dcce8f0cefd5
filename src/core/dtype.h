// Element types of tensors, in memory and in safetensors files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace qkscope {

enum class DType : std::uint8_t { f32, f16, bf16, f8_e4m3, f64, i64, i32, i16, i8, u8, boolean };

std::size_t dtype_size(DType dtype);       // bytes per element
std::string_view dtype_name(DType dtype);  // as people write it: "bfloat16"
bool is_floating(DType dtype);

// The spelling in a safetensors header ("BF16"); nullopt where we have no such type.
std::string_view safetensors_name(DType dtype);
std::optional<DType> dtype_from_safetensors(std::string_view name);

// float16, fp16, bfloat16, bf16, float32, fp32 as configurations and options spell them.
std::optional<DType> compute_dtype_from_name(std::string_view name);
// The same; any other name is bad input that says what was expected of `what`.
DType parse_compute_dtype(std::string_view name, std::string_view what);

// The 16-bit types are carried as their bits; core/convert.h turns them into float and back.
struct Bf16 {
  std::uint16_t bits;
};
struct Fp16 {
  std::uint16_t bits;
};
struct Fp8E4m3 {
  std::uint8_t bits;
};

template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct DTypeOf<Bf16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct DTypeOf<Fp16> {
  static constexpr DType value = DType::f16;
};
template <>
struct DTypeOf<Fp8E4m3> {
  static constexpr DType value = DType::f8_e4m3;
};
template <>
struct DTypeOf<std::int64_t> {
  static constexpr DType value = DType::i64;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::i32;
};

}  // namespace qkscope
