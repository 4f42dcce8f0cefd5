#include "engine/model/loaded_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <span>

#include <fmt/ranges.h>

#include "base/core/convert.h"
#include "base/core/dtype.h"
#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/translate_exceptions.h"
#include "base/io/json.h"
#include "engine/model/model_config.h"
#include "engine/model/tensor_table.h"
#include "engine/ops/weight_rows.h"
#include "input/checkpoint/checkpoint.h"

namespace qkscope {
namespace {

constexpr const char* kScaleEnding = "_scale_inv";

bool is_float8(const TensorInfo& info) {
  return info.stored_dtype == safetensors_name(DType::f8_e4m3);
}

std::uint64_t float32_bytes(const TensorInfo& info) {
  std::uint64_t bytes = sizeof(float);
  for (const auto size : info.shape) bytes *= static_cast<std::uint64_t>(size);
  return bytes;
}

// Looks up the checkpoint tensors of every model weight by name.
class WeightBinder {
 public:
  WeightBinder(const ModelConfig& model, const Checkpoint& checkpoint)
      : model_(model),
        checkpoint_(checkpoint),
        prefix_(check_names(model, checkpoint.names(), checkpoint.folder())) {
    for (const auto& spec : tensor_table(model, prefix_.experts))
      check_shape(prefix_.backbone + spec.name, spec.shape);
    if (!prefix_.head.empty()) check_shape(prefix_.head, {model.vocab_size, model.d_model});
  }

  // Checks the shapes of all FP8 scales without reading values.
  void check_all_scales() const {
    for (const auto& [name, shape] : tensor_table(model_))
      if (shape.rank() == 2 && checkpoint_.has(prefix_.backbone + name) &&
          is_float8(checkpoint_.info(prefix_.backbone + name)))
        check_scales(prefix_.backbone + name, prefix_.backbone + name + kScaleEnding);
  }

  ModelWeights bind() const {
    ModelWeights weights;
    const auto embedding = prefix_.backbone + embedding_name(model_);
    weights.embedding = matrix(checkpoint_.has(embedding) ? embedding : prefix_.head);
    weights.head.weight = prefix_.head.empty() ? weights.embedding : matrix(prefix_.head);
    if (model_.learned_positions())
      weights.positions = matrix(prefix_.backbone + model_.names.positions + ".weight");
    weights.final_norm =
        norm(prefix_.backbone + model_.names.final_norm, model_.d_model, model_.norm_bias);
    for (std::size_t i = 0; i < model_.layers.size(); ++i)
      weights.layers.push_back(model_.layers[i].cross_attention ? LayerWeights{} : layer(i));
    return weights;
  }

 private:
  void check_shape(const std::string& name, const Shape& expected) const {
    if (!checkpoint_.has(name)) return;  // a tied embedding may be stored under the other name
    const auto& info = checkpoint_.info(name);
    const bool same_rank = info.shape.size() == as_index(expected.rank());
    if (same_rank && Shape(std::span(info.shape)) == expected) return;
    bad_input("{}: tensor {} has shape [{}], config.json asks for {}", info.file, name,
              fmt::join(info.shape, ", "), expected.to_string());
  }

  LayerWeights layer(std::size_t index) const {
    const auto& names = model_.names;
    const auto at = fmt::format("{}{}.{}.", prefix_.backbone, names.layers, index);
    const auto optional_norm = [&](const std::string& name) {
      return name.empty() ? NormWeights{} : norm(at + name, model_.d_model, model_.norm_bias);
    };
    LayerWeights weights;
    weights.input_norm = optional_norm(names.input_norm);
    bind_attention(weights, at);
    weights.post_attention_norm = optional_norm(names.post_attention_norm);
    weights.mlp_norm = optional_norm(names.mlp_norm);
    if (model_.layers[index].experts)
      bind_experts(weights, at);
    else
      bind_mlp(weights, at);
    weights.post_mlp_norm = optional_norm(names.post_mlp_norm);
    return weights;
  }

  void bind_attention(LayerWeights& weights, const std::string& at) const {
    const auto& names = model_.names;
    const auto q_rows = model_.n_heads * model_.d_head;
    const auto kv_rows = model_.n_kv_heads * model_.d_head;
    if (names.qkv.empty()) {
      weights.q = linear(at + names.q, model_.qkv_bias);
      weights.k = linear(at + names.k, model_.qkv_bias);
      weights.v = linear(at + names.v, model_.qkv_bias);
    } else {
      const Linear all = linear(at + names.qkv, model_.qkv_bias);
      const auto part = [&](std::int64_t number, std::int64_t begin, std::int64_t rows) {
        return names.qkv_by_head ? every_third_block(all, number) : some_rows(all, begin, rows);
      };
      weights.q = part(0, 0, q_rows);
      weights.k = part(1, q_rows, kv_rows);
      weights.v = part(2, q_rows + kv_rows, kv_rows);
    }
    if (model_.has_sinks()) weights.sinks = vector(at + names.sinks);
    weights.o = linear(at + names.o, model_.output_bias);
    if (!model_.qk_norm) return;
    const auto width = [&](std::int64_t all) { return model_.qk_norm_whole ? all : model_.d_head; };
    weights.q_norm = norm(at + names.q_norm, width(q_rows), false);
    weights.k_norm = norm(at + names.k_norm, width(kv_rows), false);
  }

  void bind_mlp(LayerWeights& weights, const std::string& at) const {
    const auto& names = model_.names;
    if (!names.gate_up.empty()) {
      const Linear both = linear(at + names.gate_up, model_.mlp_bias);
      weights.gate = some_rows(both, 0, model_.d_mlp);
      weights.up = some_rows(both, model_.d_mlp, model_.d_mlp);
    } else {
      if (model_.gated_mlp()) weights.gate = linear(at + names.gate, model_.mlp_bias);
      weights.up = linear(at + names.up, model_.mlp_bias);
    }
    if (model_.activation == Activation::xielu) weights.xielu = xielu(at + names.activation);
    weights.down = linear(at + names.down, model_.mlp_bias);
  }

  void bind_experts(LayerWeights& weights, const std::string& at) const {
    const auto& names = prefix_.experts;
    const auto width = model_.experts.d_mlp;
    weights.router = linear(at + names.router, model_.experts.router_bias);
    for (std::int64_t i = 0; i < model_.experts.count; ++i) {
      ExpertWeights expert;
      if (names.gate_up.empty()) {
        expert.gate = expert_matrix(at + names.gate, i);
        expert.up = expert_matrix(at + names.up, i);
      } else {
        const auto both = expert_matrix(at + names.gate_up, i);
        expert.gate = some_rows(both, 0, width, names.interleaved ? 2 : 1);
        expert.up =
            names.interleaved ? some_rows(both, 1, width, 2) : some_rows(both, width, width);
      }
      expert.down = expert_matrix(at + names.down, i);
      weights.experts.push_back(std::move(expert));
    }
  }

  Linear expert_matrix(const std::string& name, std::int64_t expert) const {
    if (!holds_all_experts(name)) return linear(expert_name(name, expert), false);
    const auto& names = prefix_.experts;
    Linear one;
    if (names.mxfp4) {
      const auto blocks = slice(bytes(name + "_blocks"), expert);  // (out, in / 32, 16)
      one.weight.values = blocks.reshaped({blocks.dim(0), blocks.dim(1) * blocks.dim(2)});
      one.weight.block_scales = slice(bytes(name + "_scales"), expert);
    } else {
      const auto all = matrix(name);
      one.weight = {slice(all.values, expert), all.scale};
      if (names.transposed) one.weight.values = transposed(one.weight.values);
    }
    if (model_.experts.bias) {
      one.bias.resize(as_index(one.weight.out()));
      widen(slice(checkpoint_.tensor(name + "_bias"), expert), one.bias);
    }
    return one;
  }

  // Returns slice `index` of the first dimension: shape (a, ...) becomes (...).
  static ConstTensorView slice(ConstTensorView all, std::int64_t index) {
    Shape shape = all.rank() == 2   ? Shape{all.dim(1)}
                  : all.rank() == 3 ? Shape{all.dim(1), all.dim(2)}
                                    : Shape{all.dim(1), all.dim(2), all.dim(3)};
    return all.rows(index, index + 1).reshaped(shape);
  }

  // `count` rows of a linear layer: first, first + step, ...
  static Linear some_rows(const Linear& all, std::int64_t first, std::int64_t count,
                          std::int64_t step = 1) {
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

  // The file stores alpha_p and alpha_n before the softplus.
  XieluWeights xielu(const std::string& at) const {
    const auto number = [&](const char* name) {
      return static_cast<double>(vector(at + name).front());
    };
    const auto softplus = [](double x) {
      return std::log1p(std::exp(-std::abs(x))) + std::max(x, 0.0);
    };
    const auto beta = number(".beta");
    return {.alpha_p = static_cast<float>(softplus(number(".alpha_p"))),
            .alpha_n = static_cast<float>(beta + softplus(number(".alpha_n"))),
            .beta = static_cast<float>(beta),
            .eps = static_cast<float>(number(".eps"))};
  }

  // The q, k or v part (number 0, 1, 2) of rows ordered as (head, 3, d_head), as a strided view.
  Linear every_third_block(const Linear& all, std::int64_t number) const {
    const auto d = model_.d_head;
    const auto& v = all.weight.values;
    const auto stride = v.stride(0);
    Linear part;
    part.weight = {strided_view(v, number * d * stride, {model_.n_heads, d, v.dim(1)},
                                {3 * d * stride, stride, 1}),
                   all.weight.scale};
    for (std::int64_t head = 0; head < model_.n_heads && !all.bias.empty(); ++head) {
      const auto begin = all.bias.begin() + (3 * head + number) * d;
      part.bias.insert(part.bias.end(), begin, begin + d);
    }
    return part;
  }

  Linear linear(const std::string& name, bool bias) const {
    auto weight = matrix(name + ".weight");
    if (model_.names.transposed) weight.values = transposed(weight.values);
    return {weight, bias ? vector(name + ".bias") : std::vector<float>{}};
  }

  static ConstTensorView transposed(ConstTensorView v) {
    return strided_view(v, 0, {v.dim(1), v.dim(0)}, {1, v.dim(1)});
  }

  ConstTensorView bytes(const std::string& name) const {
    const auto values = checkpoint_.tensor(name);
    if (values.dtype() != DType::u8)
      bad_input("{}: tensor {} is {}, expected bytes (uint8) of MXFP4", checkpoint_.info(name).file,
                name, dtype_name(values.dtype()));
    return values;
  }

  WeightMatrix matrix(const std::string& name) const {
    const auto values = checkpoint_.tensor(name);
    if (!is_floating(values.dtype()))
      bad_input("{}: tensor {} is {}, expected float32, float16, bfloat16 or float8 with a scale",
                checkpoint_.info(name).file, name, dtype_name(values.dtype()));
    if (values.dtype() != DType::f8_e4m3) return {values, 1.0f};
    const auto scale = name + kScaleEnding;
    check_scales(name, scale);
    if (!model_.fp8_block.empty())
      return {checkpoint_.dequantized(name, scale, model_.fp8_block), 1.0f};
    return {values, vector(scale).front()};
  }

  // Checks that an FP8 tensor has one scale, or one scale per block.
  void check_scales(const std::string& name, const std::string& scale) const {
    if (!checkpoint_.has(scale))
      bad_input("{}: tensor {} is float8 and has no scale {}", checkpoint_.info(name).file, name,
                scale);
    const auto& info = checkpoint_.info(scale);
    if (model_.fp8_block.empty()) {
      const auto count = checkpoint_.tensor(scale).size();
      if (count != 1)
        bad_input("{}: {} has {} values, expected one scale for the whole tensor", info.file, scale,
                  count);
      return;
    }
    const auto expected = scales_shape(checkpoint_.info(name).shape, model_.fp8_block);
    if (info.shape != expected)
      bad_input("{}: {} has shape [{}], expected [{}]: a scale for each block of {}", info.file,
                scale, fmt::join(info.shape, ", "), fmt::join(expected, ", "),
                fmt::join(model_.fp8_block, " x "));
  }

  std::vector<float> vector(const std::string& name) const {
    const auto values = checkpoint_.tensor(name);
    std::vector<float> floats(as_index(values.size()));
    widen(values, floats);
    return floats;
  }

  NormWeights norm(const std::string& name, std::int64_t width, bool bias) const {
    NormWeights norm;
    if (model_.norm_weight)
      norm.weight = vector(name + ".weight");
    else
      norm.weight.assign(as_index(width), 1.0f);
    if (model_.norm_adds_one)
      for (float& weight : norm.weight) weight += 1.0f;
    if (bias) norm.bias = vector(name + ".bias");
    return norm;
  }

  const ModelConfig& model_;
  const Checkpoint& checkpoint_;
  TensorPrefix prefix_;
};

}  // namespace

LoadedCheckpoint load_model(const std::string& folder) {
  return load_model(folder, nullptr);
}

LoadedCheckpoint load_model(const std::string& folder, const Json& overrides) {
  LoadedCheckpoint model{Checkpoint::open(folder), {}, {}};
  const Json config = overrides.is_null() ? model.checkpoint.config()
                                          : merge_overrides(model.checkpoint.config(), overrides);
  model.config = parse_model_config(config, model.checkpoint.config_source());
  model.weights = bind_weights(model.config, model.checkpoint);
  return model;
}

std::uint64_t check_weights(const ModelConfig& model, const Checkpoint& checkpoint) {
  const WeightBinder binder(model, checkpoint);
  auto widened = checkpoint.widened_bytes();
  if (!model.fp8_block.empty()) {
    binder.check_all_scales();
    for (const auto& name : checkpoint.names())
      if (const auto& info = checkpoint.info(name); is_float8(info)) widened += float32_bytes(info);
  }
  // Binding would convert block-scaled tensors to float32, so it is skipped for them.
  if (widened == 0) binder.bind();
  return widened;
}

ModelWeights bind_weights(const ModelConfig& model, const Checkpoint& checkpoint) {
  return WeightBinder(model, checkpoint).bind();
}

Tensor to_float32(const WeightMatrix& matrix) {
  return translate_exceptions([&] {
    Tensor result({matrix.out(), matrix.in()});
    widen_rows(matrix, {.first = 0, .rows = matrix.out(), .begin = 0, .depth = matrix.in()},
               result.data<float>());
    return result;
  });
}

}  // namespace qkscope
