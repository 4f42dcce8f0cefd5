#include "engine/model/tensor_table.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include <fmt/ranges.h>

#include "base/core/error.h"
#include "base/core/translate_exceptions.h"

namespace qkscope {
namespace {

constexpr std::array kBackbones = {"model.",    "language_model.model.", "model.language_model.",
                                   "gpt_neox.", "transformer.",          ""};

// Collects the names and shapes of one model.
class TableBuilder {
 public:
  TableBuilder(const ModelConfig& model, const ExpertNames& experts)
      : model_(model), experts_(experts) {}

  const ExpertNames& experts() const { return experts_; }

  void add(const std::string& name, const Shape& shape) { specs_.push_back({name, shape}); }

  // Adds a linear layer with an optional bias.
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
  const ExpertNames& experts_;
  std::vector<TensorSpec> specs_;
};

void add_attention(TableBuilder& table, const ModelConfig& model, const std::string& layer) {
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
  if (model.has_sinks()) table.add(layer + names.sinks, {model.n_heads});
  table.add_linear(layer + names.o, model.d_model, q_rows, model.output_bias);
  if (!model.qk_norm) return;
  table.add_norm(layer + names.q_norm, model.qk_norm_whole ? q_rows : model.d_head, false);
  table.add_norm(layer + names.k_norm, model.qk_norm_whole ? kv_rows : model.d_head, false);
}

void add_mlp(TableBuilder& table, const ModelConfig& model, const std::string& layer) {
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

void add_all_experts(TableBuilder& table, const ModelConfig& model, const std::string& name,
                     std::int64_t out, std::int64_t in) {
  const auto& names = table.experts();
  const auto count = model.experts.count;
  if (names.mxfp4) {
    table.add(name + "_blocks", {count, out, in / 32, 16});
    table.add(name + "_scales", {count, out, in / 32});
  } else {
    table.add(name, names.transposed ? Shape{count, in, out} : Shape{count, out, in});
  }
  if (model.experts.bias) table.add(name + "_bias", {count, out});
}

void add_experts(TableBuilder& table, const ModelConfig& model, const std::string& layer) {
  const auto& names = table.experts();
  const auto& experts = model.experts;
  table.add(layer + names.router + ".weight", {experts.count, model.d_model});
  if (experts.router_bias) table.add(layer + names.router + ".bias", {experts.count});
  const auto add = [&](const std::string& name, std::int64_t out, std::int64_t in) {
    if (name.empty()) return;
    if (holds_all_experts(name)) return add_all_experts(table, model, layer + name, out, in);
    for (std::int64_t i = 0; i < experts.count; ++i)
      table.add(layer + expert_name(name, i) + ".weight", {out, in});
  };
  add(names.gate, experts.d_mlp, model.d_model);
  add(names.up, experts.d_mlp, model.d_model);
  add(names.gate_up, 2 * experts.d_mlp, model.d_model);
  add(names.down, model.d_model, experts.d_mlp);
}

void add_layer(TableBuilder& table, const ModelConfig& model, std::size_t index) {
  const auto layer = fmt::format("{}.{}.", model.names.layers, index);
  const auto add_norm = [&](const std::string& name) {
    if (!name.empty()) table.add_norm(layer + name, model.d_model, model.norm_bias);
  };
  add_norm(model.names.input_norm);
  add_attention(table, model, layer);
  add_norm(model.names.post_attention_norm);
  add_norm(model.names.mlp_norm);
  if (model.layers[index].experts)
    add_experts(table, model, layer);
  else
    add_mlp(table, model, layer);
  add_norm(model.names.post_mlp_norm);
}

bool ends_with_any(std::string_view name, const auto& endings) {
  return std::ranges::any_of(endings, [&](const auto& ending) { return name.ends_with(ending); });
}

// Returns true for tensors that are valid but not in the table: cross-attention layers, stored RoPE
// frequencies, masks and FP8 scales.
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

[[noreturn]] void fail_with_names(const std::string& where, const char* what,
                                  const std::vector<std::string>& names, const char* advice) {
  constexpr std::size_t kShown = 5;
  const auto shown = std::vector(
      names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min(kShown, names.size())));
  const auto more =
      names.size() > kShown ? fmt::format(" and {} more", names.size() - kShown) : std::string();
  bad_input("{}: {} {}{}; {}", where, what, fmt::join(shown, ", "), more, advice);
}

// Returns the naming under which the first expert layer stores its first matrix; the first known
// naming if there is none.
ExpertNames find_experts(const ModelConfig& model, const std::set<std::string>& present,
                         const std::string& backbone) {
  const auto& spellings = model.names.experts;
  if (spellings.empty()) return {};
  const auto layer = std::ranges::find_if(model.layers, &LayerConfig::experts);
  const auto at =
      fmt::format("{}{}.{}.", backbone, model.names.layers, layer - model.layers.begin());
  for (const auto& names : spellings) {
    const auto end = names.mxfp4 ? "_blocks" : holds_all_experts(names.down) ? "" : ".weight";
    if (present.contains(at + expert_name(names.down, 0) + end)) return names;
  }
  return spellings.front();
}

// Finds the prefix of the language model among those of published checkpoints.
TensorPrefix find_prefix(const ModelConfig& model, const std::set<std::string>& present,
                         const std::string& where) {
  TensorPrefix prefix;
  const auto plain_head = model.names.head + ".weight";
  for (const auto& head : {plain_head, "language_model." + plain_head})
    if (present.contains(head)) prefix.head = head;
  // Three marks, because a tied embedding may be stored as the output embedding and norms may have
  // no weights.
  const std::array marks = {embedding_name(model), model.names.final_norm + ".weight",
                            fmt::format("{}.0.{}.weight", model.names.layers, model.names.down)};
  for (const auto* backbone : kBackbones) {
    prefix.backbone = backbone;
    for (const auto& mark : marks)
      if (present.contains(prefix.backbone + mark)) return prefix;
  }
  bad_input("{}: found no language model: none of {} under any of the prefixes {}", where,
            fmt::join(marks, ", "), fmt::join(kBackbones, ", "));
}

void check_missing(const ModelConfig& model, const std::set<std::string>& present,
                   const TensorPrefix& prefix, const std::string& where) {
  std::vector<std::string> missing;
  for (const auto& spec : tensor_table(model, prefix.experts)) {
    const bool stands_in = spec.name == embedding_name(model) && model.tied && !prefix.head.empty();
    if (!stands_in && !present.contains(prefix.backbone + spec.name))
      missing.push_back(prefix.backbone + spec.name);
  }
  if (!model.tied && prefix.head.empty()) missing.push_back(model.names.head + ".weight");
  if (!missing.empty())
    fail_with_names(where, "missing tensor", missing,
                    "the checkpoint does not hold the model that its config.json describes");
}

void check_surplus(const ModelConfig& model, const std::set<std::string>& present,
                   const TensorPrefix& prefix, const std::string& where) {
  std::set<std::string> expected;
  for (const auto& spec : tensor_table(model, prefix.experts))
    expected.insert(prefix.backbone + spec.name);
  std::vector<std::string> surplus;
  for (const auto& name : present) {
    if (expected.contains(name) || name == prefix.head) continue;
    const bool ours = name.starts_with(prefix.backbone);
    if (!ours && model.wrapped) continue;  // tensors of the vision tower and projector
    const auto below =
        ours ? std::string_view(name).substr(prefix.backbone.size()) : std::string_view(name);
    if (!is_known_extra(model, below)) surplus.push_back(name);
  }
  if (!surplus.empty())
    fail_with_names(where, "unexpected tensor", surplus,
                    "config.json describes a model without it, so its results would be wrong");
}

}  // namespace

std::string embedding_name(const ModelConfig& model) {
  return model.names.embedding + ".weight";
}

std::string expert_name(const std::string& name, std::int64_t expert) {
  const auto place = name.find("{}");
  if (place == std::string::npos) return name;
  return fmt::format("{}{}{}", name.substr(0, place), expert, name.substr(place + 2));
}

bool holds_all_experts(const std::string& name) {
  return name.find("{}") == std::string::npos;
}

std::vector<TensorSpec> tensor_table(const ModelConfig& model) {
  static const ExpertNames kNone;
  return tensor_table(model, model.names.experts.empty() ? kNone : model.names.experts.front());
}

std::vector<TensorSpec> tensor_table(const ModelConfig& model, const ExpertNames& experts) {
  TableBuilder table(model, experts);
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
  auto prefix = find_prefix(model, present, where);
  prefix.experts = find_experts(model, present, prefix.backbone);
  check_missing(model, present, prefix, where);
  check_surplus(model, present, prefix, where);
  return prefix;
}

std::int64_t parameter_count(const ModelConfig& model) {
  return translate_exceptions([&] {
    std::int64_t count = model.tied ? 0 : model.vocab_size * model.d_model;
    for (const auto& spec : tensor_table(model)) count += spec.shape.count();
    return count;
  });
}

}  // namespace qkscope
