#include <set>

#include <fmt/format.h>

#include "analysis/attribution/attribution_state.h"
#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/thread_pool.h"
#include "engine/forward/forward.h"
#include "engine/ops/linear.h"

namespace qkscope {
namespace {

// Applies the linear part of a norm to the rows of `matrix` (rows, d_model), without dividing by
// the RMS or standard deviation: centres the rows (LayerNorm only) and multiplies by the weight.
Tensor apply_norm_weight(ConstTensorView matrix, const NormWeights& norm, NormKind kind) {
  Tensor result = copy_tensor(matrix);
  if (norm.empty()) return result;
  const auto width = matrix.dim(1);
  for (std::int64_t row = 0; row < matrix.dim(0); ++row) {
    float* values = result.data<float>() + row * width;
    double sum = 0;
    for (std::int64_t i = 0; i < width; ++i) sum += values[i] *= norm.weight[as_index(i)];
    const auto mean = static_cast<float>(sum / static_cast<double>(width));
    for (std::int64_t i = 0; kind == NormKind::layer && i < width; ++i) values[i] -= mean;
  }
  return result;
}

// Returns x (rows, in) times the transpose of weight (out, in).
Tensor apply_linear(ConstTensorView x, const WeightMatrix& weight) {
  Tensor y({x.dim(0), weight.out()});
  apply_linear(x, weight, y);
  return y;
}

// Returns a vector (n) as a view of shape (1, n).
ConstTensorView as_row_view(const std::vector<float>& x) {
  return {std::as_bytes(std::span(x)).data(), DType::f32, {1, std::ssize(x)}};
}

// Returns the outer product (rows, n) of factors (rows, 1) and x (1, n).
Tensor outer_product(const Tensor& factors, ConstTensorView x) {
  return apply_linear(factors, {x.reshaped({x.size(), 1})});
}

Tensor constant_column(std::int64_t rows, double value) {
  Tensor column({rows, 1});
  std::fill_n(column.data<float>(), rows, static_cast<float>(value));
  return column;
}

void add_scaled_tensor(Tensor& sum, const Tensor& x, float factor) {
  for (std::int64_t i = 0; i < sum.size(); ++i) sum.data<float>()[i] += factor * x.data<float>()[i];
}

constexpr char kDecoder[] = ".decoder";
constexpr char kActivations[] = ".activations";

}  // namespace

HeadProjector::HeadProjector(const Model& whole, AttentionHead own, bool is_query,
                             std::vector<std::int64_t> chosen)
    : model(whole.config()),
      head(own),
      query(is_query),
      own_head(query ? head.head : head.head / model.heads_per_kv_head()),
      positions(std::move(chosen)),
      input_scale(constant_column(std::ssize(positions), 1.0)) {
  const auto& layer = whole.weights().layers[as_index(head.layer)];
  const auto& norm = query ? layer.q_norm : layer.k_norm;
  const auto d = model.d_head;
  const auto linear = select_head_rows(query ? layer.q : layer.k, own_head, d);
  const Tensor projection = to_float32(linear.weight);
  matrix = apply_norm_weight(projection, layer.input_norm, model.norm);
  if (!layer.input_norm.bias.empty() || !linear.bias.empty()) {
    constant = layer.input_norm.bias.empty()
                   ? constant_column(d, 0.0)
                   : apply_linear(as_row_view(layer.input_norm.bias), {projection.view()});
    for (std::size_t i = 0; i < linear.bias.size(); ++i)
      constant.data<float>()[i] += linear.bias[i];
  }
  if (norm.empty()) return;
  const auto first = model.qk_norm_whole ? own_head * d : 0;
  head_norm.assign(norm.weight.begin() + first, norm.weight.begin() + first + d);
}

Tensor HeadProjector::copy_columns(ConstTensorView x, std::int64_t first,
                                   std::int64_t width) const {
  Tensor taken({std::ssize(rows), width});
  float* to = taken.data<float>();
  const auto stride = x.size() / x.dim(0);
  for (const auto row : rows) to = std::copy_n(x.data<float>() + row * stride + first, width, to);
  return taken;
}

void HeadProjector::add_bias(Tensor part) {
  if (!bias.empty()) add_scaled_tensor(part, bias, 1.0f);
  bias = std::move(part);
}

void HeadProjector::add_component(std::string label, Tensor part) {
  labels.push_back(std::move(label));
  parts.push_back(std::move(part));
}

ComponentVectors HeadProjector::compute_component_vectors() {
  if (!bias.empty()) add_component("bias", std::move(bias));
  if (!constant.empty()) add_component(query ? "b_Q" : "b_K", outer_product(input_scale, constant));
  const auto read = std::ssize(labels);
  if (model.qkv_clip > 0) labels.emplace_back(query ? "clip_Q" : "clip_K");
  const auto d = model.d_head;
  const auto count = std::ssize(labels);
  FloatMatrix split(std::ssize(positions) * count, d);
  parallel_for(std::ssize(positions), [&](std::int64_t row) {
    const double scale = input_scale.data<float>()[row];
    std::vector<double> sum(as_index(d), 0.0);
    for (std::int64_t c = 0; c < count; ++c)
      for (std::size_t i = 0; i < sum.size(); ++i) {
        const double value =
            c < read
                ? static_cast<double>(parts[as_index(c)].data<float>()[as_index(row * d) + i]) /
                      scale
                : std::clamp(sum[i], -model.qkv_clip, model.qkv_clip) - sum[i];
        sum[i] += value;
        split.row(row * count + c)[i] =
            static_cast<float>(value) *
            (head_norm.empty() ? 1.0f : head_norm[i] / head_scale.data<float>()[row]);
      }
  });
  return {std::move(labels), std::move(positions), std::move(split), std::move(rotated)};
}

namespace {

// Observer that passes every component (embedding, attention, MLP outputs) to each HeadProjector.
class ComponentCollector : public Observer {
 public:
  ComponentCollector(const Model& model, std::vector<HeadProjector>& inputs,
                     ComponentOptions options)
      : model_(model.config()), weights_(model.weights()), inputs_(inputs), options_(options) {
    const std::pair<bool, const char*> unsupported[] = {
        {model_.has_recurrence(),
         "{0} has layers with linear attention ({1}), whose outputs are not split, which is "
         "unsupported"},
        {model_.layer_scalars,
         "{} adds per-layer inputs and multiplies the residual stream after each layer, which is "
         "unsupported"},
        {model_.rotated_qk_norm,
         "{} normalises q and k after RoPE; use a family that does so before"},
        {model_.has_attention_gate(),
         "{} multiplies the outputs of heads by a gate, which is unsupported"},
        {model_.experts.scales_input ||
             (model_.query_scaling && model_.query_scaling->without_rope),
         "{} scales queries of layers without RoPE and inputs of experts, which is unsupported"},
        {model_.has_latent_attention(),
         "q and k of {} are projections of normalised latents, which is unsupported"},
        {options_.experts && model_.experts.shared_d_mlp > 0,
         "{} has a shared expert beside the chosen ones; leave experts out"}};
    for (const auto& [found, why] : unsupported)
      if (found)
        reject("score attribution: {}",
               fmt::format(fmt::runtime(why), model_.family, mixer_name(model_.mixer.kind)));
    std::set<std::int64_t> all;
    for (const auto& input : inputs_) {
      all.insert(input.positions.begin(), input.positions.end());
      last_layer_ = std::max(last_layer_, input.head.layer);
    }
    rows_.assign(all.begin(), all.end());
    for (auto& input : inputs_)
      for (const auto position : input.positions)
        input.rows.push_back(std::ranges::lower_bound(rows_, position) - rows_.begin());
  }

  bool wants(HookPoint point) const override {
    const auto [stage, layer] = point;
    if (stage == Stage::embed || stage == Stage::pos_embed) return true;
    if (layer < 0) return false;
    if (stage == Stage::z) return layer < last_layer_;
    if (stage == Stage::mlp_out) return layer < last_layer_ && !splits_experts(layer);
    if (stage == Stage::expert_weights || stage == Stage::expert_indices ||
        stage == Stage::mlp_post)
      return layer < last_layer_ && splits_experts(layer);
    const bool read = std::ranges::any_of(
        inputs_, [layer = layer](const HeadProjector& input) { return input.head.layer == layer; });
    if (stage == Stage::q || stage == Stage::k) return read && model_.qk_norm;
    if (stage == Stage::v) return read && options_.values;
    return read && (stage == Stage::ln1_scale || stage == Stage::rot_q || stage == Stage::rot_k);
  }

  bool wants_derived() const override { return true; }
  Selection selection(HookPoint) const override { return {.rows = rows_, .heads = {}}; }

  void observe(HookPoint point, ConstTensorView x) override {
    const auto [stage, layer] = point;
    if (stage == Stage::embed) return add_residual_term("embed", -1, x);
    if (stage == Stage::pos_embed) return add_residual_term("pos_embed", -1, x);
    if (stage == Stage::z) return add_head_outputs(layer, x);
    if (stage == Stage::mlp_out) return add_mlp_output(layer, x);
    if (stage == Stage::mlp_post) return add_expert_outputs(layer, x);
    if (stage == Stage::expert_weights) expert_weights_ = copy_tensor(x);
    if (stage == Stage::expert_indices) expert_indices_ = copy_tensor(x);
    for (auto& input : inputs_) {
      if (input.head.layer != layer) continue;
      if (stage == Stage::ln1_scale) input.input_scale = input.copy_columns(x);
      if (stage == (input.query ? Stage::q : Stage::k))
        input.head_scale =
            norm_divisors(model_.qk_norm_whole ? input.copy_columns(x) : input.copy_head_columns(x),
                          NormKind::rms, model_.norm_eps);
      if (stage == (input.query ? Stage::rot_q : Stage::rot_k))
        input.rotated = input.copy_head_columns(x);
      if (stage == Stage::v && !input.query) input.values = input.copy_head_columns(x);
    }
  }

 private:
  bool splits_experts(std::int64_t layer) const {
    return options_.experts && model_.layers[as_index(layer)].experts;
  }

  void add_residual_term(const std::string& label, std::int64_t layer, ConstTensorView x) {
    for (auto& input : inputs_)
      if (input.head.layer > layer)
        add_component(input, label, apply_linear(input.copy_columns(x), {input.matrix.view()}));
  }

  void add_head_outputs(std::int64_t layer, ConstTensorView z) {
    const auto& weights = weights_.layers[as_index(layer)];
    const auto d = model_.d_head;
    QKSCOPE_ASSERT(weights.post_attention_norm.bias.empty());
    const Tensor all_factors = attention_output_scales(weights, z);
    for (auto& input : inputs_) {
      if (input.head.layer <= layer) continue;
      const Tensor factors = input.copy_columns(all_factors);
      const Tensor behind =
          apply_norm_weight(input.matrix, weights.post_attention_norm, model_.norm);
      // Shape (d_head, n_heads * d_head): maps the outputs z of this layer's heads to their
      // contributions to the query or key of a later head, before division by norm scales.
      const auto& o = weights.o.weight.values;
      QKSCOPE_ASSERT(o.rank() == 2 && !weights.o.weight.is_mxfp4());
      const auto transposed = strided_view(o, 0, {o.dim(1), o.dim(0)}, {o.stride(1), o.stride(0)});
      const Tensor paths = apply_linear(behind, {transposed, weights.o.weight.scale});
      for (std::int64_t head = 0; head < model_.n_heads; ++head) {
        Tensor part =
            apply_linear(input.copy_columns(z, head * d, d),
                         {strided_view(paths, head * d, {d, d}, {model_.n_heads * d, 1})});
        for (std::int64_t i = 0; i < part.size(); ++i)
          part.data<float>()[i] *= factors.data<float>()[i / d];
        add_component(input, fmt::format("L{}H{}", layer, head), std::move(part));
      }
      if (!weights.o.bias.empty())
        input.add_bias(
            outer_product(factors, apply_linear(as_row_view(weights.o.bias), {behind.view()})));
    }
  }

  void add_mlp_output(std::int64_t layer, ConstTensorView added) {
    const auto label = fmt::format("{}_mlp_out", layer);
    const auto& weights = weights_.layers[as_index(layer)];
    // If a post-norm follows, do not split off the bias: the norm has rescaled the biased output.
    if (!options_.biases || weights.down.bias.empty() || !weights.post_mlp_norm.empty())
      return add_residual_term(label, layer, added);
    const Tensor bias = outer_product(constant_column(added.dim(0), model_.residual_scale),
                                      as_row_view(weights.down.bias));
    Tensor rest = copy_tensor(added);
    add_scaled_tensor(rest, bias, -1.0f);
    add_residual_term(label, layer, rest);
    for (auto& input : inputs_)
      if (input.head.layer > layer)
        input.add_bias(apply_linear(input.copy_columns(bias), {input.matrix.view()}));
  }

  // `post`: activations of the chosen experts, shape (rows, experts per token, d_expert).
  void add_expert_outputs(std::int64_t layer, ConstTensorView post) {
    const auto& weights = weights_.layers[as_index(layer)];
    QKSCOPE_ASSERT(weights.post_mlp_norm.empty());
    for (auto& weight : std::span(expert_weights_.data<float>(), as_index(expert_weights_.size())))
      weight *= static_cast<float>(model_.residual_scale);
    const auto by_expert = group_rows_by_expert(expert_indices_, model_.experts.count);
    Tensor added({post.dim(0), model_.d_model});
    for (std::int64_t expert = 0; expert < model_.experts.count; ++expert) {
      const auto slots = by_expert.expert_slots(expert);
      if (slots.empty()) continue;
      RowsByExpert one{by_expert.per_token, by_expert.begin, {slots.begin(), slots.end()}};
      for (auto& begin : one.begin)
        begin = std::clamp<std::int64_t>(begin - by_expert.begin[as_index(expert)], 0,
                                         std::ssize(slots));
      project_experts_down(post, one, weights.experts, expert_weights_, added);
      add_residual_term(fmt::format("L{}E{}", layer, expert), layer, added);
    }
  }

  void add_component(HeadProjector& input, const std::string& label, Tensor part) {
    if (options_.features == nullptr || !options_.features->has_component(label))
      return input.add_component(label, std::move(part));
    for (const auto& [number, direction, activations] :
         options_.features->active_features(label, input.positions)) {
      Tensor of_feature =
          outer_product(activations, apply_linear(direction, {input.matrix.view()}));
      add_scaled_tensor(part, of_feature, -1.0f);
      input.add_component(fmt::format("{}_F{}", label, number), std::move(of_feature));
    }
    input.add_component(label + "_error", std::move(part));
  }

  // Shape (rows, 1). Factor of each attention output row: residual multiplier / post-norm scale.
  Tensor attention_output_scales(const LayerWeights& layer, ConstTensorView z) const {
    Tensor factors = constant_column(z.dim(0), model_.residual_scale);
    if (layer.post_attention_norm.empty()) return factors;
    Tensor output({z.dim(0), model_.d_model});
    apply_linear(z.reshaped({z.dim(0), z.dim(1) * z.dim(2)}), layer.o, output);
    for (std::int64_t i = 0; i < output.size(); ++i)
      output.data<float>()[i] *= factors.data<float>()[0];
    const Tensor scales = norm_divisors(output, model_.norm, model_.norm_eps);
    for (std::int64_t row = 0; row < factors.size(); ++row)
      factors.data<float>()[row] /= scales.data<float>()[row];
    return factors;
  }

  const ModelConfig& model_;
  const ModelWeights& weights_;
  std::vector<HeadProjector>& inputs_;
  ComponentOptions options_;
  std::vector<std::int64_t> rows_;  // ascending positions of all inputs
  std::int64_t last_layer_ = 0;     // last layer with an input
  Tensor expert_weights_;           // (rows, k) of the current layer
  Tensor expert_indices_;           // (rows, k)
};

}  // namespace

void collect_components(const Model& model, const std::vector<std::int32_t>& tokens,
                        const ComponentOptions& options, std::vector<HeadProjector>& inputs) {
  Batch batch;
  batch.add(tokens);
  ComponentCollector collector(model, inputs, options);
  model.run(batch, collector);
}

FeatureFile::FeatureFile(const std::string& path, std::int64_t tokens, std::int64_t d_model)
    : file_(path) {
  for (const auto& [name, entry] : file_.header().tensors) {
    if (!name.ends_with(kDecoder) && !name.ends_with(kActivations))
      reject("{}: found tensor {}, expected names that end with {} or {}", path, name, kDecoder,
             kActivations);
    const auto component = name.substr(0, name.rfind('.'));
    const auto directions = read_matrix(component, kDecoder).shape();
    const auto activations = read_matrix(component, kActivations).shape();
    if (directions[1] != d_model)
      reject("{}: {}{} has shape {}, expected [features, {}]: the width of the model", path,
             component, kDecoder, directions.to_string(), d_model);
    if (activations[0] != tokens || activations[1] != directions[0])
      reject("{}: {}{} has shape {}, expected [{}, {}]: tokens of the text, features", path,
             component, kActivations, activations.to_string(), tokens, directions[0]);
    components_[component] = false;
  }
  if (components_.empty()) reject("{}: holds no features", path);
}

ConstTensorView FeatureFile::read_matrix(const std::string& component, const char* ending) const {
  const auto found = file_.header().tensors.find(component + ending);
  if (found == file_.header().tensors.end() || found->second.shape.size() != 2 ||
      !is_floating(found->second.dtype))
    reject(
        "{}: there is no matrix of floating-point numbers {}{}; expected COMPONENT{} and "
        "COMPONENT{}",
        file_.path(), component, ending, kDecoder, kActivations);
  return file_.tensor(found->first);
}

std::vector<ActiveFeature> FeatureFile::active_features(const std::string& component,
                                                        std::span<const std::int64_t> positions) {
  components_[component] = true;
  const auto decoder = read_matrix(component, kDecoder);
  const auto stored = read_matrix(component, kActivations);
  std::vector<Tensor> rows;  // one per position, (1, all features)
  for (const auto position : positions)
    rows.push_back(to_float32(stored.rows(position, position + 1)));
  std::vector<ActiveFeature> active;
  for (std::int64_t feature = 0; feature < decoder.dim(0); ++feature) {
    const auto activation = [&](const Tensor& row) { return row.data<float>()[feature]; };
    if (std::ranges::all_of(
            rows, [](float x) { return x == 0; }, activation))
      continue;
    Tensor activations({std::ssize(positions), 1});
    std::ranges::transform(rows, activations.data<float>(), activation);
    active.push_back(
        {feature, to_float32(decoder.rows(feature, feature + 1)), std::move(activations)});
  }
  return active;
}

void FeatureFile::check_all_components_used() const {
  for (const auto& [component, used] : components_)
    if (!used)
      reject(
          "{}: '{}' is no component that the chosen heads read; expected names such as embed, L0H3 "
          "or 2_mlp_out of layers before them",
          file_.path(), component);
}

}  // namespace qkscope
