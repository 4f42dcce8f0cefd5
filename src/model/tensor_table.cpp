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

constexpr std::array kBackbones = {"model.",    "language_model.model.", "model.language_model.",
                                   "gpt_neox.", "transformer.",          ""};

// Names and shapes, as they are collected.
class Table {
 public:
  explicit Table(const ModelConfig& model) : model_(model) {}

  void add(const std::string& name, const Shape& shape) { specs_.push_back({name, shape}); }

  // A matrix of a layer, with its bias where it has one.
  void add_linear(const std::string& name, std::int64_t out, std::int64_t in, bool bias) {
    add(name + ".weight", model_.names.transposed ? Shape{in, out} : Shape{out, in});
    if (bias) add(name + ".bias", {out});
  }

  void add_norm(const std::string& name, std::int64_t width, bool bias) {
    if (model_.norm_weight) add(name + ".weight", {width});
    if (bias) add(name + ".bias", {width});
  }

  std::vector<TensorSpec> take() { return std::move(specs_); }

 private:
  const ModelConfig& model_;
  std::vector<TensorSpec> specs_;
};

void add_attention(Table& table, const ModelConfig& model, const std::string& layer) {
  const auto& names = model.names;
  const auto q_rows = model.n_heads * model.d_head;
  const auto kv_rows = model.n_kv_heads * model.d_head;
  if (names.qkv.empty()) {
    table.add_linear(layer + names.q, q_rows, model.d_model, model.qkv_bias);
    table.add_linear(layer + names.k, kv_rows, model.d_model, model.qkv_bias);
    table.add_linear(layer + names.v, kv_rows, model.d_model, model.qkv_bias);
  } else {
    table.add_linear(layer + names.qkv, q_rows + 2 * kv_rows, model.d_model, model.qkv_bias);
  }
  table.add_linear(layer + names.o, model.d_model, q_rows, model.output_bias);
  if (!model.qk_norm) return;
  table.add_norm(layer + names.q_norm, model.qk_norm_whole ? q_rows : model.d_head, false);
  table.add_norm(layer + names.k_norm, model.qk_norm_whole ? kv_rows : model.d_head, false);
}

void add_mlp(Table& table, const ModelConfig& model, const std::string& layer) {
  const auto& names = model.names;
  if (!names.gate_up.empty()) {
    table.add_linear(layer + names.gate_up, 2 * model.d_mlp, model.d_model, model.mlp_bias);
  } else {
    if (model.gated_mlp())
      table.add_linear(layer + names.gate, model.d_mlp, model.d_model, model.mlp_bias);
    table.add_linear(layer + names.up, model.d_mlp, model.d_model, model.mlp_bias);
  }
  if (model.activation == Activation::xielu) {
    for (const auto* name : {".alpha_p", ".alpha_n"})
      table.add(layer + names.activation + name, {1});
    for (const auto* name : {".beta", ".eps"}) table.add(layer + names.activation + name, {});
  }
  table.add_linear(layer + names.down, model.d_model, model.d_mlp, model.mlp_bias);
}

void add_layer(Table& table, const ModelConfig& model, std::size_t index) {
  const auto layer = fmt::format("{}.{}.", model.names.layers, index);
  const auto add_norm = [&](const std::string& name) {
    if (!name.empty()) table.add_norm(layer + name, model.d_model, model.norm_bias);
  };
  add_norm(model.names.input_norm);
  add_attention(table, model, layer);
  add_norm(model.names.post_attention_norm);
  add_norm(model.names.mlp_norm);
  add_mlp(table, model, layer);
  add_norm(model.names.post_mlp_norm);
}

bool ends_with_any(std::string_view name, const auto& endings) {
  return std::any_of(endings.begin(), endings.end(),
                     [&](const auto& ending) { return name.ends_with(ending); });
}

// Tensors of cross-attention layers, stored RoPE tables, masks and FP8 scales are known but not in
// the table.
bool is_known_extra(const ModelConfig& model, std::string_view name) {
  constexpr std::array kScales = {".weight_scale_inv", ".activation_scale"};
  if (name.ends_with("rotary_emb.inv_freq")) return true;
  if (ends_with_any(name, model.names.buffers)) return true;
  if (model.fp8 && ends_with_any(name, kScales)) return true;
  for (std::size_t i = 0; i < model.layers.size(); ++i)
    if (model.layers[i].cross_attention &&
        name.starts_with(fmt::format("{}.{}.", model.names.layers, i)))
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
TensorPrefix find_prefix(const ModelConfig& model, const std::set<std::string>& present,
                         const std::string& where) {
  TensorPrefix prefix;
  const auto plain_head = model.names.head + ".weight";
  for (const auto& head : {plain_head, "language_model." + plain_head})
    if (present.contains(head)) prefix.head = head;
  const auto embedding = embedding_name(model);
  const auto last =
      fmt::format("{}.{}.{}.weight", model.names.layers, model.n_layers - 1, model.names.down);
  for (const auto* backbone : kBackbones) {
    prefix.backbone = backbone;
    if (present.contains(prefix.backbone + embedding) || present.contains(prefix.backbone + last))
      return prefix;
  }
  bad_input("{}: found no language model: neither {} nor {} under any of the prefixes {}", where,
            embedding, last, fmt::join(kBackbones, ", "));
}

void check_missing(const ModelConfig& model, const std::set<std::string>& present,
                   const TensorPrefix& prefix, const std::string& where) {
  std::vector<std::string> missing;
  for (const auto& spec : tensor_table(model)) {
    const bool stands_in = spec.name == embedding_name(model) && model.tied && !prefix.head.empty();
    if (!stands_in && !present.contains(prefix.backbone + spec.name))
      missing.push_back(prefix.backbone + spec.name);
  }
  if (!model.tied && prefix.head.empty()) missing.push_back(model.names.head + ".weight");
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

std::string embedding_name(const ModelConfig& model) {
  return model.names.embedding + ".weight";
}

std::vector<TensorSpec> tensor_table(const ModelConfig& model) {
  Table table(model);
  table.add(embedding_name(model), {model.embedding_rows, model.d_model});
  if (model.learned_positions())
    table.add(model.names.positions + ".weight", {model.max_positions, model.d_model});
  for (std::size_t i = 0; i < model.layers.size(); ++i)
    if (!model.layers[i].cross_attention) add_layer(table, model, i);
  table.add_norm(model.names.final_norm, model.d_model, model.norm_bias);
  return table.take();
}

TensorPrefix check_names(const ModelConfig& model, const std::vector<std::string>& names,
                         const std::string& where) {
  const std::set<std::string> present(names.begin(), names.end());
  const auto prefix = find_prefix(model, present, where);
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
