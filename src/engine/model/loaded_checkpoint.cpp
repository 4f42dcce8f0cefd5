#include "engine/model/loaded_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/model/tensor_binder.h"

namespace qkscope {
namespace {

// Walks over the weights of a model in forward order. With a checkpoint, every tensor is looked up
// by name and bound; without one, names and shapes are only listed.
class WeightBinder : TensorBinder {
 public:
  // Lists the expected tensors, named without prefix; needs no checkpoint.
  WeightBinder(const ModelConfig& model, const TensorNaming& naming)
      : TensorBinder(model, nullptr), naming_{.experts = naming.experts, .mixer = naming.mixer} {}
  WeightBinder(const ModelConfig& model, const Checkpoint& checkpoint)
      : TensorBinder(model, &checkpoint),
        naming_(detect_tensor_naming(model, checkpoint.tensor_names(), checkpoint.folder())) {
    for (const auto& spec : expected_tensors(model, naming_))
      check_shape(naming_.backbone + spec.name, spec.shape);
    if (!naming_.head.empty()) check_shape(naming_.head, {model.vocab_size, model.d_model});
  }

  // Checks the shapes of all FP8 scales without reading values.
  void check_all_float8_scales() const {
    for (const auto& [name, shape] : expected_tensors(model_))
      if (shape.rank() == 2 && checkpoint_->has_tensor(naming_.backbone + name) &&
          is_float8(checkpoint_->tensor_info(naming_.backbone + name)))
        check_float8_scales(naming_.backbone + name, naming_.backbone + name + kScaleEnding);
  }

  ModelWeights bind_all_weights() {
    ModelWeights weights;
    const auto embedding = naming_.backbone + embedding_tensor_name(model_);
    const bool stored = checkpoint_ == nullptr || checkpoint_->has_tensor(embedding);
    weights.embedding =
        bind_matrix(stored ? embedding : naming_.head, {model_.embedding_rows, model_.d_model});
    weights.head.weight = naming_.head.empty()
                              ? weights.embedding
                              : bind_matrix(naming_.head, {model_.vocab_size, model_.d_model});
    if (model_.learned_positions())
      weights.positions = bind_matrix(naming_.backbone + model_.names.positions + ".weight",
                                      {model_.max_positions, model_.d_model});
    for (std::size_t i = 0; i < model_.layers.size(); ++i)
      weights.layers.push_back(model_.layers[i].cross_attention ? LayerWeights{} : bind_layer(i));
    weights.final_norm = bind_norm(naming_.backbone, model_.names.final_norm);
    if (const auto [width, rows] = model_.per_layer; width > 0) {
      const auto& at = naming_.backbone;
      const auto all = model_.n_layers * width;
      weights.per_layer_embedding = bind_matrix(at + "embed_tokens_per_layer.weight", {rows, all});
      weights.per_layer_projection =
          bind_linear(at + "per_layer_model_projection", all, model_.d_model, false);
      weights.per_layer_norm = bind_norm(at + "per_layer_projection_norm", width, false);
    }
    return weights;
  }

  std::vector<TensorSpec> list_expected_tensors() {
    bind_all_weights();
    return std::move(specs_);
  }

 private:
  LayerWeights bind_layer(std::size_t index) {
    const auto& names = model_.names;
    const auto at = fmt::format("{}{}.{}.", naming_.backbone, names.layers, index);
    LayerWeights weights;
    const auto& layer = model_.layers[index];
    if (layer.has_state()) {
      weights.input_norm = bind_norm(at, naming_.mixer.input_norm);
      weights.mixer = bind_mixer(at);
    } else if (layer.attends()) {
      weights.input_norm = bind_norm(at, names.input_norm);
    }
    if (layer.attends()) {
      bind_attention(weights, at, layer);
      const auto& after = naming_.mixer.post_attention_norm;
      weights.post_attention_norm =
          bind_norm(at, after.empty() ? names.post_attention_norm : after);
    }
    if (!layer.mlp) return weights;
    const auto& mlp_norm = layer.has_state() ? naming_.mixer.mlp_norm : names.mlp_norm;
    weights.mlp_norm = layer.attends() && names.mlp_norm == names.input_norm
                           ? weights.input_norm
                           : bind_norm(at, mlp_norm);
    if (layer.experts)
      bind_experts(weights, at);
    else if (const auto& dense = naming_.experts.dense; !dense.empty())
      bind_mlp_module(weights, at + dense, model_.d_mlp_of(layer));
    else
      bind_mlp(weights, at, model_.d_mlp_of(layer));
    if (!layer.has_state()) weights.post_mlp_norm = bind_norm(at, names.post_mlp_norm);
    bind_per_layer_input(weights, at);
    return weights;
  }

  // Binds the per-layer input projection and the scale factor of a layer, if the model has them.
  void bind_per_layer_input(LayerWeights& weights, const std::string& at) {
    const auto d = model_.d_model;
    if (const auto width = model_.per_layer.width; width > 0) {
      weights.per_layer_gate = bind_linear(at + "per_layer_input_gate", width, d, false);
      weights.per_layer_output = bind_linear(at + "per_layer_projection", d, width, false);
      weights.post_per_layer_norm = bind_norm(at, "post_per_layer_input_norm");
    }
    if (!model_.layer_scalars) return;
    const auto scalar = bind_vector(at + "layer_scalar", {1});
    if (!scalar.empty()) weights.scalar = scalar.front();
  }

  MixerWeights bind_mixer(const std::string& at) {
    const auto& names = naming_.mixer;
    const auto& c = model_.mixer;
    MixerWeights w;
    if (c.has_delta_rule())
      bind_gated_delta(w, at);
    else
      bind_fused_projection(w, at);
    w.convolution = bind_convolution(at);
    if (c.convolution_bias)
      w.convolution_bias = reorder_channels_to_qkv(
          bind_vector(at + names.convolutions[0] + ".bias", {c.channels()}), 1);
    const auto& scale = model_.projection_scales.mixer_output;
    w.output = bind_linear(at + names.output, model_.d_model, c.value_width(), c.output_bias);
    scale_linear(w.output, scale, scale);
    if (c.kind == Mixer::short_convolution) return w;
    const bool is_kimi = c.kind == Mixer::kimi_delta;
    w.a_log = bind_vector(at + names.module + ".A_log",
                          is_kimi ? Shape{1, 1, c.value_heads, 1} : Shape{c.value_heads});
    w.dt_bias = bind_vector(at + names.module + ".dt_bias", {c.decays()});
    const bool mamba = c.kind == Mixer::mamba2;
    if (mamba) w.skip = bind_vector(at + names.module + ".D", {c.value_heads});
    if (!names.norm.empty())
      w.norm = bind_vector(at + names.norm + ".weight", {mamba ? c.value_width() : c.d_value});
    return w;
  }

  void bind_fused_projection(MixerWeights& w, const std::string& at) {
    const auto& c = model_.mixer;
    const auto values = c.value_width();
    struct MatrixPart {
      Linear* linear;
      std::int64_t rows;
    };
    const std::vector<MatrixPart> parts =
        c.kind == Mixer::short_convolution
            ? std::vector<MatrixPart>{{&w.k, values}, {&w.z, values}, {&w.v, values}}
            : std::vector<MatrixPart>{{&w.z, values},
                                      {&w.v, values},
                                      {&w.k, c.key_width()},
                                      {&w.q, c.key_width()},
                                      {&w.a, c.value_heads}};
    std::int64_t total = 0;
    for (const auto& part : parts) total += part.rows;
    const Linear all = bind_linear(at + naming_.mixer.all, total, model_.d_model, c.input_bias);
    std::int64_t first = 0;
    for (std::size_t i = 0; i < parts.size(); first += parts[i++].rows) {
      const auto& scales = model_.projection_scales;
      *parts[i].linear = select_rows(all, first, parts[i].rows);
      scale_linear(*parts[i].linear, scales.mixer_input * scales.mixer[i], scales.mixer[i]);
    }
  }

  // Returns convolution weights with channels in the order q, k, v; Mamba 2 files store v, k, q.
  std::vector<float> reorder_channels_to_qkv(const std::vector<float>& x,
                                             std::int64_t per_channel) const {
    if (model_.mixer.kind != Mixer::mamba2 || x.empty()) return x;
    const auto keys = as_index(model_.mixer.key_width() * per_channel);
    const auto values = x.size() - 2 * keys;
    std::vector<float> sorted;
    for (const auto first : {values + keys, values, std::size_t{0}})
      sorted.insert(sorted.end(), x.begin() + static_cast<std::ptrdiff_t>(first),
                    x.begin() + static_cast<std::ptrdiff_t>(first + (first == 0 ? values : keys)));
    return sorted;
  }

  void bind_gated_delta(MixerWeights& w, const std::string& at) {
    const auto& names = naming_.mixer;
    const auto& c = model_.mixer;
    const auto d = model_.d_model;
    const auto keys = c.key_width();
    const auto values = c.value_width();
    if (!names.ba.empty()) {  // for each key head: rows of b, then rows of a
      const Linear gates = bind_linear(at + names.ba, 2 * c.value_heads, d, false);
      const auto gates_of_key_head = c.value_heads / c.key_heads;
      w.b = select_row_blocks(gates, c.key_heads, 0, gates_of_key_head);
      w.a = select_row_blocks(gates, c.key_heads, gates_of_key_head, gates_of_key_head);
    }
    if (!names.qkvz.empty()) {  // for each key head: rows of q, k, v, then z
      const Linear all = bind_linear(at + names.qkvz, 2 * (keys + values), d, false);
      const auto group = values / c.key_heads;
      w.q = select_row_blocks(all, c.key_heads, 0, c.d_key);
      w.k = select_row_blocks(all, c.key_heads, c.d_key, c.d_key);
      w.v = select_row_blocks(all, c.key_heads, 2 * c.d_key, group);
      w.z = select_row_blocks(all, c.key_heads, 2 * c.d_key + group, group);
      return;
    }
    if (!names.qkv.empty()) {
      const Linear all = bind_linear(at + names.qkv, c.channels(), d, false);
      w.q = select_rows(all, 0, keys);
      w.k = select_rows(all, keys, keys);
      w.v = select_rows(all, 2 * keys, values);
    } else {
      w.q = bind_linear(at + names.q, keys, d, false);
      w.k = bind_linear(at + names.k, keys, d, false);
      w.v = bind_linear(at + names.v, values, d, false);
    }
    const bool in_ranks = c.gate_rank() > 0;
    if (in_ranks) w.z_latent = bind_linear(at + names.z_latent, c.d_value, d, false);
    if (in_ranks) w.a_latent = bind_linear(at + names.a_latent, c.d_key, d, false);
    w.z = bind_linear(at + names.z, values, in_ranks ? c.d_value : d, false);
    if (!names.ba.empty()) return;
    w.b = bind_linear(at + names.b, c.value_heads, d, false);
    w.a = bind_linear(at + names.a, c.decays(), in_ranks ? c.d_key : d, false);
  }

  // Returns convolution weights (taps, channels), from one tensor or one each for q, k and v.
  std::vector<float> bind_convolution(const std::string& at) {
    const auto& c = model_.mixer;
    const auto& names = naming_.mixer.convolutions;
    std::vector<std::int64_t> widths{c.key_width(), c.key_width(), c.value_width()};
    const auto third = (c.channels() + 2) / 3;
    if (naming_.mixer.even_convolutions) widths = {third, third, c.channels() - 2 * third};
    if (names.size() == 1) widths = {c.channels()};
    std::vector<float> all;  // (channels, taps)
    for (std::size_t i = 0; i < names.size(); ++i) {
      const auto part = bind_vector(at + names[i] + ".weight", {widths[i], 1, c.taps});
      all.insert(all.end(), part.begin(), part.end());
    }
    all = reorder_channels_to_qkv(all, c.taps);
    std::vector<float> by_tap(all.size());
    for (std::size_t i = 0; i < all.size(); ++i)
      by_tap[i % as_index(c.taps) * as_index(c.channels()) + i / as_index(c.taps)] = all[i];
    return by_tap;
  }

  void bind_attention(LayerWeights& weights, const std::string& at, const LayerConfig& layer) {
    const auto& names = model_.names;
    const auto d = model_.d_model;
    const auto d_head = model_.d_head_of(layer);
    const auto q_rows = model_.n_heads * d_head;
    const auto kv_rows = model_.n_kv_heads_of(layer) * d_head;
    const auto z_width = model_.n_heads * model_.d_value_of(layer);
    if (model_.has_latent_attention()) {
      bind_latent_attention(weights, at);
    } else if (names.qkv.empty()) {
      if (names.attention_gate == names.q) {
        const Linear both = bind_linear(at + names.q, 2 * q_rows, d, model_.qkv_bias);
        weights.q = select_row_blocks(both, model_.n_heads, 0, d_head);
        weights.attention_gate = select_row_blocks(both, model_.n_heads, d_head, d_head);
      } else {
        weights.q = bind_linear(at + names.q, q_rows, d, model_.qkv_bias);
      }
      if (!layer.shares_kv()) {
        weights.k = bind_linear(at + names.k, kv_rows, d, model_.qkv_bias);
        weights.v =
            layer.v_from_k ? weights.k : bind_linear(at + names.v, kv_rows, d, model_.qkv_bias);
      }
    } else {
      const Linear all = bind_linear(at + names.qkv, q_rows + 2 * kv_rows, d, model_.qkv_bias);
      const auto part = [&](std::int64_t number, std::int64_t begin, std::int64_t rows) {
        return names.qkv_by_head ? select_row_blocks(all, model_.n_heads, number * d_head, d_head)
                                 : select_rows(all, begin, rows);
      };
      weights.q = part(0, 0, q_rows);
      weights.k = part(1, q_rows, kv_rows);
      weights.v = part(2, q_rows + kv_rows, kv_rows);
    }
    if (model_.has_sinks()) weights.sinks = bind_vector(at + names.sinks, {model_.n_heads});
    if (model_.has_attention_gate() && names.attention_gate != names.q)
      weights.attention_gate = bind_linear(at + names.attention_gate, q_rows, d, false);
    weights.o = bind_linear(at + names.o, d, z_width, model_.output_bias);
    const auto& scales = model_.projection_scales;
    scale_linear(weights.q, scales.attention_input, 1.0);
    scale_linear(weights.k, scales.attention_input * scales.k, scales.k);
    scale_linear(weights.v, scales.attention_input, 1.0);
    scale_linear(weights.o, scales.o, scales.o);
    if (!model_.qk_norm && !model_.rotated_qk_norm) return;
    if (model_.v_norm) weights.v_norm.weight.assign(as_index(d_head), 1.0f);
    if (names.q_norm.empty()) {
      weights.q_norm.weight.assign(as_index(d_head), 1.0f);
      weights.k_norm = weights.q_norm;
      return;
    }
    weights.q_norm = bind_norm(at + names.q_norm, model_.qk_norm_whole ? q_rows : d_head, false);
    if (!layer.shares_kv())
      weights.k_norm = bind_norm(at + names.k_norm, model_.qk_norm_whole ? kv_rows : d_head, false);
  }

  void bind_latent_attention(LayerWeights& weights, const std::string& at) {
    const auto& names = model_.names;
    const auto& [kv_rank, q_rank, d_value, eps, shared] = model_.latent;
    const auto own = model_.d_head - shared;  // key dimensions of a head that come from the latent
    auto& latent = weights.latent;
    if (q_rank > 0) {
      latent.q = bind_linear(at + names.q_latent, q_rank, model_.d_model, model_.qkv_bias);
      latent.q_norm = bind_norm(at + names.q_latent_norm, q_rank, false);
    }
    weights.q = bind_linear(at + names.q, model_.n_heads * model_.d_head,
                            q_rank > 0 ? q_rank : model_.d_model, false);
    const Linear down =
        bind_linear(at + names.kv_latent, kv_rank + shared, model_.d_model, model_.qkv_bias);
    latent.kv = select_rows(down, 0, kv_rank);
    latent.rotated_key = select_rows(down, kv_rank, shared);
    latent.kv_norm = bind_norm(at + names.kv_latent_norm, kv_rank, false);
    const Linear up = bind_linear(at + names.k, model_.n_heads * (own + d_value), kv_rank, false);
    weights.k = select_row_blocks(up, model_.n_heads, 0, own);
    weights.v = select_row_blocks(up, model_.n_heads, own, d_value);
  }

  void bind_mlp(LayerWeights& weights, const std::string& at, std::int64_t width) {
    const auto& names = model_.names;
    const auto d = model_.d_model;
    if (!names.gate_up.empty()) {
      const Linear both = bind_linear(at + names.gate_up, 2 * width, d, model_.mlp_bias);
      weights.gate = select_rows(both, 0, width);
      weights.up = select_rows(both, width, width);
    } else {
      if (model_.gated_mlp())
        weights.gate = bind_linear(at + names.gate, width, d, model_.mlp_bias);
      weights.up = bind_linear(at + names.up, width, d, model_.mlp_bias);
    }
    if (model_.activation == Activation::xielu) weights.xielu = bind_xielu(at + names.activation);
    weights.down = bind_linear(at + names.down, d, width, model_.mlp_bias);
    const auto& scales = model_.projection_scales;
    scale_linear(weights.gate, scales.gate, scales.gate);
    scale_linear(weights.down, scales.down, scales.down);
  }

  void bind_mlp_module(LayerWeights& weights, const std::string& module, std::int64_t width) {
    const auto d = model_.d_model;
    if (model_.gated_mlp()) weights.gate = bind_linear(module + ".gate_proj", width, d, false);
    weights.up = bind_linear(module + ".up_proj", width, d, false);
    weights.down = bind_linear(module + ".down_proj", d, width, false);
  }

  void bind_experts(LayerWeights& weights, const std::string& at) {
    const auto& names = naming_.experts;
    const auto d = model_.d_model;
    const auto count = model_.experts.count;
    const auto width = model_.experts.d_mlp;
    weights.router = bind_linear(at + names.router, count, d, model_.experts.router_bias);
    weights.experts.resize(as_index(count));
    if (!names.selection_bias.empty())
      weights.selection_bias = bind_vector(at + names.selection_bias,
                                           names.bias_has_rows ? Shape{1, count} : Shape{count});
    if (const auto shared = model_.experts.shared_d_mlp; shared > 0 && names.shared.empty()) {
      bind_mlp(weights, at, shared);
    } else if (shared > 0) {
      bind_mlp_module(weights, at + names.shared, shared);
      if (!names.shared_gate.empty())
        weights.shared_gate = bind_linear(at + names.shared_gate, 1, d, false);
    }
    const auto for_each_expert = [&](const std::string& name, std::int64_t out, std::int64_t in,
                                     const auto& assign) {
      for (std::int64_t i = 0; i < count && !name.empty(); ++i)
        assign(weights.experts[as_index(i)], bind_expert_matrix(at + name, i, out, in));
    };
    using Expert = ExpertWeights;
    for_each_expert(names.gate, width, d, [](Expert& e, Linear m) { e.gate = std::move(m); });
    for_each_expert(names.up, width, d, [](Expert& e, Linear m) { e.up = std::move(m); });
    for_each_expert(names.gate_up, 2 * width, d, [&](Expert& e, const Linear& both) {
      e.gate = select_rows(both, 0, width, names.interleaved ? 2 : 1);
      e.up = names.interleaved ? select_rows(both, 1, width, 2) : select_rows(both, width, width);
    });
    for_each_expert(names.down, d, width, [](Expert& e, Linear m) { e.down = std::move(m); });
  }

  Linear bind_expert_matrix(const std::string& name, std::int64_t expert, std::int64_t out,
                            std::int64_t in) {
    if (!is_stacked_tensor_name(name))
      return bind_linear(expert_tensor_name(name, expert), out, in, false);
    // Returns the slice of one expert from a tensor of all experts; empty without a checkpoint.
    const auto slice = [&](const std::string& tensor, const Shape& shape, auto read) {
      if (checkpoint_ != nullptr) return slice_first_dimension(read(tensor), expert);
      if (expert == 0) add_spec_if_no_checkpoint(tensor, shape);
      return ConstTensorView();
    };
    const auto& names = naming_.experts;
    const auto count = model_.experts.count;
    const auto bytes = [&](const std::string& tensor) { return read_byte_tensor(tensor); };
    Linear one;
    if (names.mxfp4) {
      const auto blocks = slice(name + "_blocks", {count, out, in / 32, 16}, bytes);
      one.weight.block_scales = slice(name + "_scales", {count, out, in / 32}, bytes);
      if (!blocks.empty())
        one.weight.values = blocks.reshaped({blocks.dim(0), blocks.dim(1) * blocks.dim(2)});
    } else {
      const auto shape = names.transposed ? Shape{count, in, out} : Shape{count, out, in};
      one.weight.values = slice(name, shape, [&](const std::string& tensor) {
        const auto all = read_matrix(tensor);
        one.weight.scale = all.scale;
        return all.values;
      });
      if (names.transposed && !one.weight.values.empty())
        one.weight.values = transposed_view(one.weight.values);
    }
    if (model_.experts.bias) {
      const auto bias = slice(name + "_bias", {count, out}, [&](const std::string& tensor) {
        return checkpoint_->tensor(tensor);
      });
      if (!bias.empty()) {
        one.bias.resize(as_index(bias.size()));
        convert_to_float32(bias, one.bias);
      }
    }
    return one;
  }

  // Checkpoints store alpha_p and alpha_n of xIELU as arguments of a softplus.
  XieluWeights bind_xielu(const std::string& at) {
    const auto number = [&](const char* name, const Shape& shape) {
      const auto values = bind_vector(at + name, shape);
      return values.empty() ? 0.0 : static_cast<double>(values.front());
    };
    const auto softplus = [](double x) {
      return std::log1p(std::exp(-std::abs(x))) + std::max(x, 0.0);
    };
    const auto alpha_p = number(".alpha_p", {1});
    const auto alpha_n = number(".alpha_n", {1});
    const auto beta = number(".beta", {});
    return {.alpha_p = static_cast<float>(softplus(alpha_p)),
            .alpha_n = static_cast<float>(beta + softplus(alpha_n)),
            .beta = static_cast<float>(beta),
            .eps = static_cast<float>(number(".eps", {}))};
  }

  TensorNaming naming_;
};

}  // namespace

std::vector<TensorSpec> expected_tensors(const ModelConfig& model) {
  TensorNaming naming;
  if (!model.names.experts.empty()) naming.experts = model.names.experts.front();
  if (!model.names.mixer.empty()) naming.mixer = model.names.mixer.front();
  return expected_tensors(model, naming);
}

std::vector<TensorSpec> expected_tensors(const ModelConfig& model, const TensorNaming& naming) {
  return WeightBinder(model, naming).list_expected_tensors();
}

std::uint64_t check_tensors_and_count_widened_bytes(const ModelConfig& model,
                                                    const Checkpoint& checkpoint) {
  WeightBinder binder(model, checkpoint);
  auto widened = checkpoint.dequantized_bytes();
  if (!model.fp8_block.empty()) {
    binder.check_all_float8_scales();
    for (const auto& name : checkpoint.tensor_names()) {
      std::uint64_t bytes = is_float8(checkpoint.tensor_info(name)) ? sizeof(float) : 0;
      for (const auto size : checkpoint.tensor_info(name).shape)
        bytes *= static_cast<std::uint64_t>(size);
      widened += bytes;
    }
  }
  // Block-scaled tensors are not bound, because bind_all_weights() would convert them to float32.
  if (widened == 0) binder.bind_all_weights();
  return widened;
}

ModelWeights bind_weights(const ModelConfig& model, const Checkpoint& checkpoint) {
  return WeightBinder(model, checkpoint).bind_all_weights();
}

}  // namespace qkscope
