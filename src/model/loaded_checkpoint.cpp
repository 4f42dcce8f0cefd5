#include "model/loaded_checkpoint.h"

#include <algorithm>
#include <span>

#include <fmt/ranges.h>

#include "core/convert.h"
#include "core/error.h"
#include "core/thread_pool.h"
#include "io/json.h"
#include "model/model_config.h"
#include "model/tensor_table.h"

namespace qkscope {
namespace {

// Looks up the tensor of every weight.
class Binder {
 public:
  Binder(const ModelConfig& model, const Checkpoint& checkpoint)
      : model_(model),
        checkpoint_(checkpoint),
        prefix_(check_names(model, checkpoint.names(), checkpoint.folder())) {
    for (const auto& spec : tensor_table(model))
      check_shape(prefix_.backbone + spec.name, spec.shape);
    if (!prefix_.head.empty()) check_shape(prefix_.head, {model.vocab_size, model.d_model});
  }

  ModelWeights bind() const {
    ModelWeights weights;
    const bool embedding_is_head = !checkpoint_.has(prefix_.backbone + "embed_tokens.weight");
    weights.embedding =
        matrix(embedding_is_head ? prefix_.head : prefix_.backbone + "embed_tokens.weight");
    weights.head = prefix_.head.empty() ? weights.embedding : matrix(prefix_.head);
    weights.final_norm = norm(prefix_.backbone + "norm");
    for (std::size_t i = 0; i < model_.layers.size(); ++i)
      weights.layers.push_back(model_.layers[i].cross_attention ? LayerWeights{} : layer(i));
    return weights;
  }

 private:
  void check_shape(const std::string& name, const Shape& expected) const {
    if (!checkpoint_.has(name)) return;  // a tied embedding stored under the other name
    const auto& info = checkpoint_.info(name);
    const bool same_rank = info.shape.size() == static_cast<std::size_t>(expected.rank());
    if (same_rank && Shape(std::span(info.shape)) == expected) return;
    bad_input("{}: tensor {} has shape [{}], config.json asks for {}", info.file, name,
              fmt::join(info.shape, ", "), expected.to_string());
  }

  LayerWeights layer(std::size_t index) const {
    const auto at = fmt::format("{}layers.{}.", prefix_.backbone, index);
    LayerWeights weights;
    weights.input_norm = norm(at + "input_layernorm");
    weights.q = linear(at + "self_attn.q_proj", model_.qkv_bias);
    weights.k = linear(at + "self_attn.k_proj", model_.qkv_bias);
    weights.v = linear(at + "self_attn.v_proj", model_.qkv_bias);
    weights.o = linear(at + "self_attn.o_proj", model_.output_bias);
    if (model_.qk_norm) {
      weights.q_norm = norm(at + "self_attn.q_norm");
      weights.k_norm = norm(at + "self_attn.k_norm");
    }
    const auto& names = model_.names;
    if (!names.post_attention_norm.empty())
      weights.post_attention_norm = norm(at + names.post_attention_norm);
    weights.mlp_norm = norm(at + names.mlp_norm);
    bind_mlp(weights, at + "mlp.");
    if (!names.post_mlp_norm.empty()) weights.post_mlp_norm = norm(at + names.post_mlp_norm);
    return weights;
  }

  void bind_mlp(LayerWeights& weights, const std::string& at) const {
    weights.down = linear(at + "down_proj", model_.mlp_bias);
    if (!model_.names.fused_gate_up) {
      weights.gate = linear(at + "gate_proj", model_.mlp_bias);
      weights.up = linear(at + "up_proj", model_.mlp_bias);
      return;
    }
    const Linear both = linear(at + "gate_up_proj", model_.mlp_bias);
    const auto half = [&](std::int64_t begin) {
      Linear part;
      part.weight = {both.weight.values.rows(begin, begin + model_.d_mlp), both.weight.scale};
      if (!both.bias.empty())
        part.bias.assign(both.bias.begin() + begin, both.bias.begin() + begin + model_.d_mlp);
      return part;
    };
    weights.gate = half(0);
    weights.up = half(model_.d_mlp);
  }

  Linear linear(const std::string& name, bool bias) const {
    return {matrix(name + ".weight"), bias ? vector(name + ".bias") : std::vector<float>{}};
  }

  WeightMatrix matrix(const std::string& name) const {
    const auto values = checkpoint_.tensor(name);
    if (!is_floating(values.dtype()))
      bad_input("{}: tensor {} is {}, expected float32, float16, bfloat16 or float8 with a scale",
                checkpoint_.info(name).file, name, dtype_name(values.dtype()));
    if (values.dtype() != DType::f8_e4m3) return {values, 1.0f};
    const auto scale = name + "_scale_inv";
    if (!checkpoint_.has(scale))
      bad_input("{}: tensor {} is float8 and has no scale {}", checkpoint_.info(name).file, name,
                scale);
    const auto factor = vector(scale);
    if (factor.size() != 1)
      bad_input("{}: {} has {} values, expected one scale for the whole tensor",
                checkpoint_.info(scale).file, scale, factor.size());
    return {values, factor[0]};
  }

  std::vector<float> vector(const std::string& name) const {
    const auto values = checkpoint_.tensor(name);
    std::vector<float> floats(static_cast<std::size_t>(values.size()));
    widen(values, floats);
    return floats;
  }

  std::vector<float> norm(const std::string& name) const {
    auto weights = vector(name + ".weight");
    if (model_.norm_adds_one)
      for (float& weight : weights) weight += 1.0f;
    return weights;
  }

  const ModelConfig& model_;
  const Checkpoint& checkpoint_;
  TensorPrefix prefix_;
};

// Column i of `matrix` (out, in) times norm[i], as a tensor that the model then owns.
void fold_into(WeightMatrix& matrix, std::span<const float> norm, LoadedCheckpoint& model) {
  Tensor folded = to_float32(matrix.values);
  const auto in = folded.dim(1);
  float* values = folded.data<float>();
  const float scale = matrix.scale;
  parallel_for(folded.dim(0), [&](std::int64_t row) {
    for (std::int64_t i = 0; i < in; ++i)
      values[row * in + i] *= scale * norm[static_cast<std::size_t>(i)];
  });
  matrix = {folded.view(), 1.0f};
  model.folded.push_back(std::move(folded));
}

void become_one(std::vector<float>& norm) {
  std::fill(norm.begin(), norm.end(), 1.0f);
}

}  // namespace

LoadedCheckpoint load_model(const std::string& folder) {
  return load_model(folder, nullptr);
}

LoadedCheckpoint load_model(const std::string& folder, const Json& overrides) {
  LoadedCheckpoint model{Checkpoint::open(folder), {}, {}};
  const Json config = overrides.is_null() ? model.checkpoint.config()
                                          : merge_overrides(model.checkpoint.config(), overrides);
  model.config = parse_model_config(config, folder + "/config.json");
  model.weights = bind_weights(model.config, model.checkpoint);
  return model;
}

ModelWeights bind_weights(const ModelConfig& model, const Checkpoint& checkpoint) {
  return Binder(model, checkpoint).bind();
}

void fold_norms(LoadedCheckpoint& model) {
  for (auto& layer : model.weights.layers) {
    if (layer.input_norm.empty()) continue;  // a cross-attention layer
    for (auto* linear : {&layer.q, &layer.k, &layer.v})
      fold_into(linear->weight, layer.input_norm, model);
    for (auto* linear : {&layer.gate, &layer.up}) fold_into(linear->weight, layer.mlp_norm, model);
    become_one(layer.input_norm);
    become_one(layer.mlp_norm);
  }
  fold_into(model.weights.head, model.weights.final_norm, model);
  become_one(model.weights.final_norm);
}

}  // namespace qkscope
