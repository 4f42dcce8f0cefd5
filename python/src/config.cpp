// Python bindings for ModelConfig in qkscope/model.h.
#include <optional>
#include <tuple>

#include <fmt/core.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "arrays.h"
#include "bind.h"
#include "qkscope/model.h"

namespace qkscope::python {
namespace nb = nanobind;
namespace {

using Layers = std::vector<std::int64_t>;

// Converts per-layer values to a Python list. Its IndexError message shows the valid range of
// layers.
template <typename Value>
nb::object by_layer(const std::vector<Value>& values) {
  return nb::module_::import_("qkscope._arrays").attr("LayerList")(nb::cast(values));
}

std::string activation_name(const ModelConfig& config) {
  switch (config.activation) {
    case Activation::silu:
      return "silu";
    case Activation::gelu_tanh:
      return "gelu_tanh";
    case Activation::xielu:
      return "xielu";
    case Activation::clamped_swiglu:
      return "clamped_swiglu";
    case Activation::relu2:
      return "relu2";
    case Activation::sigmoid:  // of gates on attention, not of an MLP
    case Activation::gelu:
      break;
  }
  return "gelu";
}

nb::object rope_by_layer(const ModelConfig& config) {
  std::vector<std::optional<RopeConfig>> ropes;
  for (std::int64_t layer = 0; layer < config.n_layers; ++layer) {
    const auto* rope = config.rope(layer);
    ropes.push_back(rope == nullptr ? std::nullopt : std::optional(*rope));
  }
  return by_layer(ropes);
}

Array inverse_frequencies(const RopeConfig& rope, std::int64_t length) {
  const auto frequencies = rope_frequencies(rope, length);
  Tensor tensor({rope.dim / 2});
  std::copy(frequencies.inverse.begin(), frequencies.inverse.end(), tensor.data<float>());
  return to_array(std::move(tensor));
}

std::string describe(const RopeConfig& rope) {
  return fmt::format("Rope(type='{}', theta={:g}, dim={}, factor={:g})", rope_type_name(rope.type),
                     rope.theta, rope.dim, rope.factor);
}

std::string describe(const ModelConfig& config) {
  return fmt::format(
      "Config(family='{}', n_layers={}, n_heads={}, n_key_value_heads={}, d_model={}, d_head={}, "
      "d_mlp={}, d_vocab={}, n_ctx={})",
      config.family, config.n_layers, config.n_heads, config.n_kv_heads, config.d_model,
      config.d_head, config.d_mlp, config.vocab_size, config.max_positions);
}

void bind_rope(nb::module_& module) {
  nb::class_<RopeConfig>(module, "Rope", "Rotary position embedding of a layer.")
      .def_prop_ro(
          "type", [](const RopeConfig& rope) { return rope_type_name(rope.type); },
          "'default', 'linear', 'dynamic', 'yarn', 'llama3', 'longrope' or 'proportional'.")
      .def_ro("theta", &RopeConfig::theta)
      .def_ro("dim", &RopeConfig::dim, "Rotated part of the head, even.")
      .def_ro("factor", &RopeConfig::factor)
      .def_ro("original_n_ctx", &RopeConfig::original_max)
      .def("inv_freq", &inverse_frequencies, nb::arg("length") = 1,
           "[dim / 2] radians per position, for a sequence of `length` tokens.")
      .def(
          "attention_factor",
          [](const RopeConfig& rope, std::int64_t length) {
            return rope_frequencies(rope, length).attention_factor;
          },
          nb::arg("length") = 1, "Multiplies cos and sin, for a sequence of `length` tokens.")
      .def("__repr__", [](const RopeConfig& rope) { return describe(rope); });
}

// Binds the fields that only a few model families use.
void bind_details(nb::class_<ModelConfig>& of_model) {
  of_model.def_ro("embedding_scale", &ModelConfig::embedding_scale, "Multiplies the embedding.")
      .def_ro("qkv_clip", &ModelConfig::qkv_clip, "q, k and v are clipped to ± this; 0: not.")
      .def_prop_ro("d_value", &ModelConfig::d_value, "Width of a head of v and z.")
      .def_prop_ro(
          "latent_ranks",
          [](const ModelConfig& config) {
            return config.has_latent_attention()
                       ? std::optional(std::pair(config.latent.kv_rank, config.latent.q_rank))
                       : std::nullopt;
          },
          "(kv_rank, q_rank) of latent attention (MLA), q_rank 0 without a latent of q; or None.")
      .def_ro("qk_norm_whole", &ModelConfig::qk_norm_whole,
              "Whether the norm of q and k covers all heads together.")
      .def_ro("rope_interleaved", &ModelConfig::rope_interleaved,
              "Rotary pairs are (2i, 2i+1) instead of (i, i + dim/2).")
      .def_prop_ro(
          "attn_scales",
          [](const ModelConfig& config) {
            std::vector<double> scales;
            for (std::int64_t layer = 0; layer < config.n_layers; ++layer)
              scales.push_back(config.score_scale(layer));
            return by_layer(scales);
          },
          nb::for_getter(nb::sig("def attn_scales(self) -> list[float]")),
          "Scale of q·k, by layer.")
      .def_prop_ro(
          "query_scaling",
          [](const ModelConfig& config) {
            const auto& scaling = config.query_scaling;
            return scaling ? std::optional(std::tuple(scaling->beta, scaling->original_max))
                           : std::nullopt;
          },
          "(beta, n): queries are multiplied by 1 + beta ln(1 + floor(position / n)); or None.");
}

}  // namespace

void bind_config(nb::module_& module) {
  bind_rope(module);
  nb::class_<ModelConfig> of_model(
      module, "Config", "Configuration of a model, with the same names for all families.");
  of_model.def_ro("family", &ModelConfig::family)
      .def_ro("n_layers", &ModelConfig::n_layers)
      .def_ro("n_heads", &ModelConfig::n_heads)
      .def_ro("n_key_value_heads", &ModelConfig::n_kv_heads)
      .def_ro("d_model", &ModelConfig::d_model)
      .def_ro("d_head", &ModelConfig::d_head)
      .def_ro("d_mlp", &ModelConfig::d_mlp)
      .def_prop_ro(
          "num_experts", [](const ModelConfig& config) { return config.experts.count; },
          "Experts per mixture-of-experts layer; 0: none.")
      .def_prop_ro("experts_per_token",
                   [](const ModelConfig& config) { return config.experts.per_token; })
      .def_prop_ro(
          "d_expert", [](const ModelConfig& config) { return config.experts.d_mlp; },
          "Width of one expert.")
      .def_ro("d_vocab", &ModelConfig::vocab_size)
      .def_ro("n_ctx", &ModelConfig::max_positions, "Positions the model was made for.")
      .def_ro("eps", &ModelConfig::norm_eps)
      .def_prop_ro(
          "normalization_type",
          [](const ModelConfig& config) { return config.norm == NormKind::layer ? "LN" : "RMS"; },
          "'LN' (takes off the mean) or 'RMS', whether folded or not.")
      .def_ro("residual_scale", &ModelConfig::residual_scale,
              "Factor of the outputs of attention and MLP.")
      .def_ro("logit_scale", &ModelConfig::logit_scale, "Multiplies logits, before their cap.")
      .def_ro("qk_norm", &ModelConfig::qk_norm, "q and k are normalised before RoPE.")
      .def_ro("attn_scale", &ModelConfig::attention_scale, "Multiplies q·k.")
      .def_ro("attn_scores_soft_cap", &ModelConfig::attention_softcap, "Of scores; 0: none.")
      .def_ro("output_logits_soft_cap", &ModelConfig::logit_softcap, "Of logits; 0: none.")
      .def_ro("parallel_attn_mlp", &ModelConfig::parallel_residual,
              "Whether attention and MLP run in parallel on the input of the block.")
      .def_prop_ro("gated_mlp", &ModelConfig::gated_mlp)
      .def_prop_ro(
          "positional_embedding_type",
          [](const ModelConfig& config) {
            return config.learned_positions() ? "standard"
                   : config.ropes.empty()     ? "none"
                                              : "rotary";
          },
          "'rotary', 'standard' (learned) or 'none'.")
      .def_prop_ro("act_fn", &activation_name)
      .def_prop_ro("rope", &rope_by_layer,
                   nb::for_getter(nb::sig("def rope(self) -> list[Rope | None]")),
                   "RoPE by layer; None for layers without RoPE (NoPE).")
      .def_prop_ro(
          "window",
          [](const ModelConfig& config) {
            Layers windows;
            for (const auto& layer : config.layers) windows.push_back(layer.window);
            return by_layer(windows);
          },
          nb::for_getter(nb::sig("def window(self) -> list[int]")),
          "Sliding window by layer, in keys including the query itself; 0: full attention.")
      .def("__repr__", [](const ModelConfig& config) { return describe(config); });
  bind_details(of_model);
}

}  // namespace qkscope::python
