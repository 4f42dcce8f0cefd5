// Binds individual tensors of a checkpoint: lookup by name, checks, and parts of matrices as views.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <fmt/ranges.h>

#include "base/core/convert.h"
#include "base/core/error.h"
#include "base/core/numbers.h"
#include "engine/model/loaded_checkpoint.h"
#include "engine/ops/linear.h"

namespace qkscope {

inline constexpr const char* kScaleEnding = "_scale_inv";

inline bool is_float8(const TensorInfo& info) {
  return info.stored_dtype == safetensors_name(DType::f8_e4m3);
}

// Without a checkpoint, tensors are listed in specs_ and bound to empty weights.
class TensorBinder {
 protected:
  TensorBinder(const ModelConfig& model, const Checkpoint* checkpoint)
      : model_(model), checkpoint_(checkpoint) {}

  void check_shape(const std::string& name, const Shape& expected) const {
    if (!checkpoint_->has_tensor(name)) return;  // a tied embedding has only one of its two names
    const auto& info = checkpoint_->tensor_info(name);
    const bool same_rank = info.shape.size() == as_index(expected.rank());
    if (same_rank && Shape(std::span(info.shape)) == expected) return;
    reject("{}: tensor {} has shape [{}], config.json asks for {}", info.file, name,
           fmt::join(info.shape, ", "), expected.to_string());
  }

  // Without a checkpoint, adds the tensor to the list of expected tensors and returns true.
  bool add_spec_if_no_checkpoint(const std::string& name, const Shape& shape) {
    if (checkpoint_ == nullptr) specs_.push_back({name, shape});
    return checkpoint_ == nullptr;
  }

  WeightMatrix bind_matrix(const std::string& name, const Shape& shape) {
    return add_spec_if_no_checkpoint(name, shape) ? WeightMatrix{} : read_matrix(name);
  }

  std::vector<float> bind_vector(const std::string& name, const Shape& shape) {
    return add_spec_if_no_checkpoint(name, shape) ? std::vector<float>{} : read_vector(name);
  }

  Linear bind_linear(const std::string& name, std::int64_t out, std::int64_t in, bool bias) {
    const bool flip = model_.names.transposed;
    auto weight = bind_matrix(name + ".weight", flip ? Shape{in, out} : Shape{out, in});
    if (flip && !weight.values.empty()) weight.values = transposed_view(weight.values);
    return {weight, bias ? bind_vector(name + ".bias", {out}) : std::vector<float>{}};
  }

  // Binds a norm of the residual stream; an empty name means that the model has no such norm.
  NormWeights bind_norm(const std::string& at, const std::string& name) {
    return name.empty() ? NormWeights{} : bind_norm(at + name, model_.d_model, model_.norm_bias);
  }

  NormWeights bind_norm(const std::string& name, std::int64_t width, bool bias) {
    NormWeights norm;
    if (model_.norm_weight)
      norm.weight = bind_vector(name + ".weight", {width});
    else
      norm.weight.assign(as_index(width), 1.0f);
    if (model_.norm_adds_one)
      for (float& weight : norm.weight) weight += 1.0f;
    if (bias) norm.bias = bind_vector(name + ".bias", {width});
    return norm;
  }

  ConstTensorView read_byte_tensor(const std::string& name) const {
    const auto values = checkpoint_->tensor(name);
    if (values.dtype() != DType::u8)
      reject("{}: tensor {} is {}, expected bytes (uint8) of MXFP4",
             checkpoint_->tensor_info(name).file, name, dtype_name(values.dtype()));
    return values;
  }

  WeightMatrix read_matrix(const std::string& name) const {
    const auto values = checkpoint_->tensor(name);
    if (!is_floating(values.dtype()))
      reject("{}: tensor {} is {}, expected float32, float16, bfloat16 or float8 with a scale",
             checkpoint_->tensor_info(name).file, name, dtype_name(values.dtype()));
    if (values.dtype() != DType::f8_e4m3) return {values, 1.0f};
    const auto scale = name + kScaleEnding;
    check_float8_scales(name, scale);
    if (!model_.fp8_block.empty())
      return {checkpoint_->dequantized_float8(name, scale, model_.fp8_block), 1.0f};
    return {values, read_vector(scale).front()};
  }

  std::vector<float> read_vector(const std::string& name) const {
    const auto values = checkpoint_->tensor(name);
    std::vector<float> floats(as_index(values.size()));
    convert_to_float32(values, floats);
    return floats;
  }

  // Checks that an FP8 tensor has one scale, or one scale per block.
  void check_float8_scales(const std::string& name, const std::string& scale) const {
    if (!checkpoint_->has_tensor(scale))
      reject("{}: tensor {} is float8 and has no scale {}", checkpoint_->tensor_info(name).file,
             name, scale);
    const auto& info = checkpoint_->tensor_info(scale);
    if (model_.fp8_block.empty()) {
      const auto count = checkpoint_->tensor(scale).size();
      if (count != 1)
        reject("{}: {} has {} values, expected one scale for the whole tensor", info.file, scale,
               count);
      return;
    }
    const auto expected =
        float8_scales_shape(checkpoint_->tensor_info(name).shape, model_.fp8_block);
    if (info.shape != expected)
      reject("{}: {} has shape [{}], expected [{}]: a scale for each block of {}", info.file, scale,
             fmt::join(info.shape, ", "), fmt::join(expected, ", "),
             fmt::join(model_.fp8_block, " x "));
  }

  static ConstTensorView transposed_view(ConstTensorView v) {
    return strided_view(v, 0, {v.dim(1), v.dim(0)}, {1, v.dim(1)});
  }

  // Returns slice `index` of the first dimension: shape (a, ...) becomes (...).
  static ConstTensorView slice_first_dimension(ConstTensorView all, std::int64_t index) {
    Shape shape = all.rank() == 2   ? Shape{all.dim(1)}
                  : all.rank() == 3 ? Shape{all.dim(1), all.dim(2)}
                                    : Shape{all.dim(1), all.dim(2), all.dim(3)};
    return all.rows(index, index + 1).reshaped(shape);
  }

  // Returns `count` rows of a linear layer: rows first, first + step, and so on.
  static Linear select_rows(const Linear& all, std::int64_t first, std::int64_t count,
                            std::int64_t step = 1) {
    if (all.weight.values.empty()) return {};
    const auto rows = [&](ConstTensorView v) {
      return strided_view(v, first * v.stride(0), {count, v.dim(1)},
                          {step * v.stride(0), v.stride(1)});
    };
    Linear part;
    part.weight = {rows(all.weight.values), all.weight.scale};
    if (all.weight.is_mxfp4()) part.weight.block_scales = rows(all.weight.block_scales);
    for (std::int64_t i = 0; i < count && !all.bias.empty(); ++i)
      part.bias.push_back(all.bias[as_index(first + i * step)]);
    return part;
  }

  // Returns rows [first, first + count) of each of `blocks` equal blocks of rows, as a view.
  static Linear select_row_blocks(const Linear& all, std::int64_t blocks, std::int64_t first,
                                  std::int64_t count) {
    if (all.weight.values.empty()) return {};
    const auto& v = all.weight.values;
    const auto rows = v.dim(0) / blocks;
    const auto stride = v.stride(0);
    Linear part;
    part.weight = {strided_view(v, first * stride, {blocks, count, v.dim(1)},
                                {rows * stride, stride, v.stride(1)}),
                   all.weight.scale};
    for (std::int64_t block = 0; block < blocks && !all.bias.empty(); ++block) {
      const auto begin = all.bias.begin() + block * rows + first;
      part.bias.insert(part.bias.end(), begin, begin + count);
    }
    return part;
  }

  static void scale_linear(Linear& linear, double weight, double bias) {
    linear.weight.scale *= static_cast<float>(weight);
    for (float& value : linear.bias) value *= static_cast<float>(bias);
  }

  const ModelConfig& model_;
  const Checkpoint* checkpoint_;  // null: names and shapes are listed
  std::vector<TensorSpec> specs_;
};

}  // namespace qkscope
