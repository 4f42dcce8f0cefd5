// How files and options spell element types (qkscope/tensor.h).
#pragma once

#include <optional>
#include <string_view>

#include "base/core/dtype.h"
#include "qkscope/tensor.h"

namespace qkscope {

// The spelling in a safetensors header ("BF16"); nullopt where we have no such type.
std::string_view safetensors_name(DType dtype);
std::optional<DType> dtype_from_safetensors(std::string_view name);

// float16, fp16, bfloat16, bf16, float32, fp32 as configurations and options spell them.
std::optional<DType> compute_dtype_from_name(std::string_view name);

}  // namespace qkscope
