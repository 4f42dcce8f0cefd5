#include "model/tensor_table.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include <fmt/ranges.h>

#include "core/edge.h"
#include "core/error.h"

namespace qkscope {
namespace {

constexpr std::array kBackbones = {"model.", "language_model.model.", "model.language_model.", ""};
constexpr std::array kHeads = {"lm_head.weight", "language_model.lm_head.weight"};
constexpr const char* kEmbedding = "embed_tokens.weight";

void add_linear(std::vector<TensorSpec>& table, const std::string& name, const Shape& shape,
                bool bias) {
  table.push_back({name + ".weight", shape});
  if (bias) table.push_back({name + ".bias", {shape[0]}});
}

void add_attention(std::vector<TensorSpec>& table, const ModelConfig& model,
                   const std::string& layer) {
  const auto q_rows = model.n_heads * model.d_head;
  const auto kv_rows = model.n_kv_heads * model.d_head;
  add_linear(table, layer + "self_attn.q_proj", {q_rows, model.d_model}, model.qkv_bias);
  add_linear(table, layer + "self_attn.k_proj", {kv_rows, model.d_model}, model.qkv_bias);
  add_linear(table, layer + "self_attn.v_proj", {kv_rows, model.d_model}, model.qkv_bias);
  add_linear(table, layer + "self_attn.o_proj", {model.d_model, q_rows}, model.output_bias);
  if (!model.qk_norm) return;
  table.push_back({layer + "self_attn.q_norm.weight", {model.d_head}});
  table.push_back({layer + "self_attn.k_norm.weight", {model.d_head}});
}

void add_mlp(std::vector<TensorSpec>& table, const ModelConfig& model, const std::string& layer) {
  const Shape wide = {model.d_mlp, model.d_model};
  if (model.names.fused_gate_up) {
    add_linear(table, layer + "mlp.gate_up_proj", {2 * model.d_mlp, model.d_model}, model.mlp_bias);
  } else {
    add_linear(table, layer + "mlp.gate_proj", wide, model.mlp_bias);
    add_linear(table, layer + "mlp.up_proj", wide, model.mlp_bias);
  }
  add_linear(table, layer + "mlp.down_proj", {model.d_model, model.d_mlp}, model.mlp_bias);
}

void add_layer(std::vector<TensorSpec>& table, const ModelConfig& model, std::size_t index) {
  const auto layer = fmt::format("layers.{}.", index);
  const auto add_norm = [&](const std::string& name) {
    if (!name.empty()) table.push_back({layer + name + ".weight", {model.d_model}});
  };
  add_norm("input_layernorm");
  add_attention(table, model, layer);
  add_norm(model.names.post_attention_norm);
  add_norm(model.names.mlp_norm);
  add_mlp(table, model, layer);
  add_norm(model.names.post_mlp_norm);
}

bool ends_with_any(std::string_view name, std::initializer_list<std::string_view> endings) {
  for (const auto ending : endings)
    if (name.ends_with(ending)) return true;
  return false;
}

// Tensors of cross-attention layers, stored RoPE tables and FP8 scales are known but not in the
// table.
bool is_known_extra(const ModelConfig& model, std::string_view name) {
  if (name.ends_with("rotary_emb.inv_freq")) return true;
  if (model.fp8 && ends_with_any(name, {".weight_scale_inv", ".activation_scale"})) return true;
  for (std::size_t i = 0; i < model.layers.size(); ++i)
    if (model.layers[i].cross_attention && name.starts_with(fmt::format("layers.{}.", i)))
      return true;
  return false;
}

[[noreturn]] void complain_about(const std::string& where, const char* what,
                                 const std::vector<std::string>& names, const char* advice) {
  constexpr std::size_t kShown = 5;
  const auto shown = std::vector(
      names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min(kShown, names.size())));
  const auto more =
      names.size() > kShown ? fmt::format(" and {} more", names.size() - kShown) : std::string();
  bad_input("{}: {} {}{}; {}", where, what, fmt::join(shown, ", "), more, advice);
}

// Looks for the tensors under every spelling that published checkpoints use.
TensorPrefix find_prefix(const std::set<std::string>& present, const std::string& where) {
  TensorPrefix prefix;
  for (const auto* head : kHeads)
    if (present.contains(head)) prefix.head = head;
  for (const auto* backbone : kBackbones) {
    prefix.backbone = backbone;
    if (present.contains(prefix.backbone + kEmbedding) ||
        present.contains(prefix.backbone + "norm.weight"))
      return prefix;
  }
  bad_input("{}: found no language model: neither {} nor norm.weight under any of the prefixes {}",
            where, kEmbedding, fmt::join(kBackbones, ", "));
}

void check_missing(const ModelConfig& model, const std::set<std::string>& present,
                   const TensorPrefix& prefix, const std::string& where) {
  std::vector<std::string> missing;
  for (const auto& spec : tensor_table(model)) {
    const bool stands_in = spec.name == kEmbedding && model.tied && !prefix.head.empty();
    if (!stands_in && !present.contains(prefix.backbone + spec.name))
      missing.push_back(prefix.backbone + spec.name);
  }
  if (!model.tied && prefix.head.empty()) missing.emplace_back(kHeads[0]);
  if (!missing.empty())
    complain_about(where, "missing tensor", missing,
                   "the checkpoint does not hold the model that its config.json describes");
}

void check_surplus(const ModelConfig& model, const std::set<std::string>& present,
                   const TensorPrefix& prefix, const std::string& where) {
  std::set<std::string> expected;
  for (const auto& spec : tensor_table(model)) expected.insert(prefix.backbone + spec.name);
  std::vector<std::string> surplus;
  for (const auto& name : present) {
    if (expected.contains(name) || name == prefix.head) continue;
    const bool ours = name.starts_with(prefix.backbone);
    if (!ours && model.wrapped) continue;  // vision tower, projector
    const auto below =
        ours ? std::string_view(name).substr(prefix.backbone.size()) : std::string_view(name);
    if (!is_known_extra(model, below)) surplus.push_back(name);
  }
  if (!surplus.empty())
    complain_about(where, "unexpected tensor", surplus,
                   "config.json describes a model without it, so its results would be wrong");
}

}  // namespace

std::vector<TensorSpec> tensor_table(const ModelConfig& model) {
  std::vector<TensorSpec> table;
  table.push_back({kEmbedding, {model.embedding_rows, model.d_model}});
  for (std::size_t i = 0; i < model.layers.size(); ++i)
    if (!model.layers[i].cross_attention) add_layer(table, model, i);
  table.push_back({"norm.weight", {model.d_model}});
  return table;
}

TensorPrefix check_names(const ModelConfig& model, const std::vector<std::string>& names,
                         const std::string& where) {
  const std::set<std::string> present(names.begin(), names.end());
  const auto prefix = find_prefix(present, where);
  check_missing(model, present, prefix, where);
  check_surplus(model, present, prefix, where);
  return prefix;
}

std::int64_t parameter_count(const ModelConfig& model) {
  return at_edge([&] {
    std::int64_t count = model.tied ? 0 : model.vocab_size * model.d_model;
    for (const auto& spec : tensor_table(model)) count += spec.shape.count();
    return count;
  });
}

}  // namespace qkscope
