#include "base/core/dtype.h"

#include <array>

#include "base/core/error.h"

namespace qkscope {
namespace {

struct DTypeInfo {
  DType dtype;
  std::size_t size;
  std::string_view name;
  std::string_view safetensors;
};

constexpr std::array kTypes = {
    DTypeInfo{DType::f32, 4, "float32", "F32"},
    DTypeInfo{DType::f16, 2, "float16", "F16"},
    DTypeInfo{DType::bf16, 2, "bfloat16", "BF16"},
    DTypeInfo{DType::f8_e4m3, 1, "float8_e4m3", "F8_E4M3"},
    DTypeInfo{DType::f64, 8, "float64", "F64"},
    DTypeInfo{DType::i64, 8, "int64", "I64"},
    DTypeInfo{DType::i32, 4, "int32", "I32"},
    DTypeInfo{DType::i16, 2, "int16", "I16"},
    DTypeInfo{DType::i8, 1, "int8", "I8"},
    DTypeInfo{DType::u8, 1, "uint8", "U8"},
    DTypeInfo{DType::boolean, 1, "bool", "BOOL"},
};

const DTypeInfo& info(DType dtype) {
  for (const auto& type : kTypes)
    if (type.dtype == dtype) return type;
  assertion_failed("known dtype", __FILE__, __LINE__);
}

}  // namespace

std::size_t dtype_size(DType dtype) {
  return info(dtype).size;
}
std::string_view dtype_name(DType dtype) {
  return info(dtype).name;
}
std::string_view safetensors_name(DType dtype) {
  return info(dtype).safetensors;
}

bool is_floating(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16 ||
         dtype == DType::f8_e4m3 || dtype == DType::f64;
}

std::optional<DType> dtype_from_safetensors(std::string_view name) {
  for (const auto& type : kTypes)
    if (type.safetensors == name) return type.dtype;
  return std::nullopt;
}

std::optional<DType> compute_dtype_from_name(std::string_view name) {
  if (name == "float32" || name == "fp32") return DType::f32;
  if (name == "float16" || name == "fp16") return DType::f16;
  if (name == "bfloat16" || name == "bf16") return DType::bf16;
  return std::nullopt;
}

DType parse_compute_dtype(std::string_view name, std::string_view what) {
  const auto dtype = compute_dtype_from_name(name);
  if (!dtype) bad_input("{}: found '{}', expected float32, float16 or bfloat16", what, name);
  return *dtype;
}

}  // namespace qkscope
