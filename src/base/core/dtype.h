// Names of element types (qkscope/tensor.h) in files and options.
#pragma once

#include <optional>
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
std::optional<DType> compute_dtype_from_name(std::string_view name);

}  // namespace qkscope
