#include "analysis/attribution/components.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "base/core/error.h"
#include "base/core/numbers.h"
#include "engine/forward/derived.h"
#include "engine/ops/linear.h"

namespace qkscope {
namespace {

// Returns matrix (rows, d_model) behind a norm without its scale: columns times the weight of the
// norm. A LayerNorm subtracts the mean first, which is linear: rows of the result are centred.
Tensor through_norm(const Tensor& matrix, const NormWeights& norm, NormKind kind) {
  const auto width = matrix.dim(1);
  Tensor result(matrix.shape());
  for (std::int64_t row = 0; row < matrix.dim(0); ++row) {
    const float* from = matrix.data<float>() + row * width;
    float* to = result.data<float>() + row * width;
    double sum = 0;
    for (std::int64_t i = 0; i < width; ++i) {
      to[i] = norm.empty() ? from[i] : from[i] * norm.weight[as_index(i)];
      sum += to[i];
    }
    if (norm.empty() || kind != NormKind::layer) continue;
    for (std::int64_t i = 0; i < width; ++i)
      to[i] -= static_cast<float>(sum / static_cast<double>(width));
  }
  return result;
}

// Returns (rows): matrix (rows, n) times x (n).
std::vector<double> times(const Tensor& matrix, std::span<const float> x) {
  std::vector<double> y(as_index(matrix.dim(0)), 0.0);
  for (std::size_t row = 0; row < y.size(); ++row)
    for (std::size_t i = 0; i < x.size(); ++i)
      y[row] +=
          static_cast<double>(matrix.data<float>()[row * x.size() + i]) * static_cast<double>(x[i]);
  return y;
}

// Returns x (rows, in) times the transpose of weight (out, in).
Tensor project(ConstTensorView x, const WeightMatrix& weight) {
  Tensor y({x.dim(0), weight.out()});
  linear(x, weight, y);
  return y;
}

WeightMatrix transposed(const WeightMatrix& matrix) {
  const auto& v = matrix.values;
  QKSCOPE_ASSERT(v.rank() == 2 && !matrix.is_mxfp4());
  return {strided_view(v, 0, {v.dim(1), v.dim(0)}, {v.stride(1), v.stride(0)}), matrix.scale};
}

// Multiplies each row of part (rows, d_head) by a factor (rows, 1).
void scale_rows(Tensor& part, const Tensor& factors) {
  for (std::int64_t i = 0; i < part.size(); ++i)
    part.data<float>()[i] *= factors.data<float>()[i / part.dim(1)];
}

// Returns (rows, 1): the divisor of the q/k norm for the vectors (rows, width) of a head, or of all
// heads together.
Tensor head_norm_scales(const Tensor& vectors, double eps) {
  Tensor scales({vectors.dim(0), 1});
  const auto width = vectors.size() / vectors.dim(0);
  for (std::int64_t row = 0; row < vectors.dim(0); ++row) {
    const float* values = vectors.data<float>() + row * width;
    double squares = 0;
    for (std::int64_t i = 0; i < width; ++i) squares += static_cast<double>(values[i]) * values[i];
    scales.data<float>()[row] =
        static_cast<float>(std::sqrt(squares / static_cast<double>(width) + eps));
  }
  return scales;
}

Tensor flatten_heads(const Tensor& x) {  // (rows, 1, d) as (rows, d)
  Tensor flat({x.dim(0), x.size() / x.dim(0)});
  std::memcpy(flat.view().bytes(), x.view().bytes(), x.view().size_bytes());
  return flat;
}

}  // namespace

HeadReader::HeadReader(const Model& model, AttentionHead head, Side side,
                       std::vector<std::int64_t> positions)
    : model_(model.config()),
      head_(head),
      side_(side),
      own_head_(side == Side::query ? head.head : head.head / model_.heads_per_kv_head()),
      positions_(std::move(positions)) {
  const auto& layer = model.weights().layers[as_index(head.layer)];
  const auto& norm = side == Side::query ? layer.q_norm : layer.k_norm;
  const auto d = model_.d_head;
  const auto own = rows_of_head(side == Side::query ? layer.q : layer.k, own_head_, d);
  const Tensor projection = to_float32(own.weight);
  matrix_ = through_norm(projection, layer.input_norm, model_.norm);
  if (!layer.input_norm.bias.empty()) constant_ = times(projection, layer.input_norm.bias);
  if (!own.bias.empty()) constant_.resize(as_index(d), 0.0);
  for (std::size_t i = 0; i < own.bias.size(); ++i) constant_[i] += own.bias[i];
  if (norm.empty()) return;
  const auto first = model_.qk_norm_whole ? own_head_ * d : 0;
  head_norm_.assign(norm.weight.begin() + first, norm.weight.begin() + first + d);
}

void HeadReader::add(std::string label, Tensor part) {
  labels_.push_back(std::move(label));
  parts_.push_back(std::move(part));
}

void HeadReader::add_bias(const Tensor& part) {
  if (bias_part_.empty()) {
    bias_part_ = copy_of(part);
    return;
  }
  for (std::int64_t i = 0; i < part.size(); ++i)
    bias_part_.data<float>()[i] += part.data<float>()[i];
}

SplitVectors HeadReader::split() {
  const bool query = side_ == Side::query;
  if (!bias_part_.empty()) add("bias", std::move(bias_part_));
  const auto read = std::ssize(labels_);  // components of the stream, behind the input norm
  if (!constant_.empty()) labels_.emplace_back(query ? "b_Q" : "b_K");
  const bool clips = model_.qkv_clip > 0;
  if (clips) labels_.emplace_back(query ? "clip_Q" : "clip_K");
  const auto d = model_.d_head;
  const auto count = std::ssize(labels_);
  SplitVectors vectors{labels_, positions_, FloatMatrix(std::ssize(positions_) * count, d)};
  for (std::int64_t row = 0; row < std::ssize(positions_); ++row) {
    const double scale =
        input_scale.empty() ? 1.0 : static_cast<double>(input_scale.data<float>()[row]);
    std::vector<double> sum(as_index(d), 0.0);
    for (std::int64_t c = 0; c < count; ++c)
      for (std::int64_t i = 0; i < d; ++i) {
        double value = 0;
        if (c < read)
          value = static_cast<double>(parts_[as_index(c)].data<float>()[row * d + i]) / scale;
        else if (c == read && !constant_.empty())
          value = constant_[as_index(i)];
        else
          value =
              std::clamp(sum[as_index(i)], -model_.qkv_clip, model_.qkv_clip) - sum[as_index(i)];
        sum[as_index(i)] += value;
        vectors.values(row * count + c, i) = static_cast<float>(value);
      }
  }
  for (std::int64_t row = 0; !head_norm_.empty() && row < vectors.values.rows; ++row)
    for (std::int64_t i = 0; i < d; ++i)
      vectors.values(row, i) *= head_norm_[as_index(i)] / head_scale.data<float>()[row / count];
  parts_.clear();
  return vectors;
}

ComponentCollector::ComponentCollector(const Model& model, std::vector<HeadReader>& readers,
                                       Options options)
    : model_(model.config()), weights_(model.weights()), readers_(readers), options_(options) {
  if (model_.rotated_qk_norm)
    bad_input(
        "score attribution: {} normalises q and k after RoPE; use a family that does so before",
        model_.family);
  if (model_.has_attention_gate())
    bad_input(
        "score attribution: {} multiplies the outputs of heads by a gate, which is unsupported",
        model_.family);
  if (options_.experts && model_.experts.shared_d_mlp > 0)
    bad_input("score attribution: {} has a shared expert beside the chosen ones; leave experts out",
              model_.family);
  for (const auto& reader : readers_) {
    rows_.insert(rows_.end(), reader.positions().begin(), reader.positions().end());
    last_layer_ = std::max(last_layer_, reader.head().layer);
  }
  std::ranges::sort(rows_);
  rows_.erase(std::unique(rows_.begin(), rows_.end()), rows_.end());
}

bool ComponentCollector::splits_experts(std::int64_t layer) const {
  return options_.experts && model_.layers[as_index(layer)].experts;
}

bool ComponentCollector::wants(HookPoint point) const {
  const auto [stage, layer] = point;
  if (stage == Stage::embed || stage == Stage::pos_embed) return true;
  if (layer < 0) return false;
  if (stage == Stage::z) return layer < last_layer_;
  if (stage == Stage::mlp_out) return layer < last_layer_ && !splits_experts(layer);
  if (stage == Stage::expert_weights || stage == Stage::expert_indices || stage == Stage::mlp_post)
    return layer < last_layer_ && splits_experts(layer);
  const bool read = std::ranges::any_of(
      readers_, [&](const HeadReader& reader) { return reader.head().layer == layer; });
  if (stage == Stage::q || stage == Stage::k) return read && model_.qk_norm;
  if (stage == Stage::v) return read && options_.values;
  return read && (stage == Stage::ln1_scale || stage == Stage::rot_q || stage == Stage::rot_k);
}

void ComponentCollector::see(HookPoint point, ConstTensorView x) {
  const auto [stage, layer] = point;
  if (stage == Stage::embed)
    add_stream("embed", -1, x);
  else if (stage == Stage::pos_embed)
    add_stream("pos_embed", -1, x);
  else if (stage == Stage::z)
    add_heads(layer, x);
  else if (stage == Stage::mlp_out)
    add_mlp(layer, x);
  else if (stage == Stage::expert_weights)
    expert_weights_ = copy_of(x);
  else if (stage == Stage::expert_indices)
    expert_indices_ = copy_of(x);
  else if (stage == Stage::mlp_post)
    add_experts(layer, x);
  else
    set_scales_and_vectors(point, x);
}

void ComponentCollector::set_scales_and_vectors(HookPoint point, ConstTensorView x) {
  const auto stage = point.stage;
  for (auto& reader : readers_) {
    if (reader.head().layer != point.layer) continue;
    const bool query = reader.side() == HeadReader::Side::query;
    if (stage == Stage::ln1_scale) reader.input_scale = pick(reader, x);
    if (stage == (query ? Stage::q : Stage::k)) {
      const Tensor all = pick(reader, x);
      reader.head_scale = head_norm_scales(
          model_.qk_norm_whole ? copy_of(all) : copy_heads(all, reader.own_head(), 1),
          model_.norm_eps);
    }
    if (stage == (query ? Stage::rot_q : Stage::rot_k))
      reader.rotated = flatten_heads(copy_heads(pick(reader, x), reader.own_head(), 1));
    if (stage == Stage::v && !query)
      reader.values = flatten_heads(copy_heads(pick(reader, x), reader.own_head(), 1));
  }
}

Tensor ComponentCollector::pick(const HeadReader& reader, ConstTensorView x) const {
  Shape shape = x.shape();
  const auto width = x.size() / shape[0];
  shape[0] = std::ssize(reader.positions());
  Tensor picked(shape);
  float* to = picked.data<float>();
  for (const auto position : reader.positions()) {
    const auto row = std::ranges::lower_bound(rows_, position) - rows_.begin();
    to = std::copy_n(x.data<float>() + row * width, width, to);
  }
  return picked;
}

void ComponentCollector::add_component(HeadReader& reader, const std::string& label, Tensor part) {
  if (options_.features == nullptr || !options_.features->has(label))
    return reader.add(label, std::move(part));
  const auto active = options_.features->active(label, reader.positions());
  const auto count = std::ssize(active.numbers);
  const auto d = part.dim(1);
  if (count > 0) {
    const Tensor directions = project(active.directions, {reader.matrix().view()});  // (count, d)
    for (std::int64_t f = 0; f < count; ++f) {
      Tensor of_feature(part.shape());
      for (std::int64_t i = 0; i < part.size(); ++i) {
        const float value = active.activations.data<float>()[i / d * count + f] *
                            directions.data<float>()[f * d + i % d];
        of_feature.data<float>()[i] = value;
        part.data<float>()[i] -= value;
      }
      reader.add(fmt::format("{}_F{}", label, active.numbers[as_index(f)]), std::move(of_feature));
    }
  }
  reader.add(label + "_error", std::move(part));
}

void ComponentCollector::add_stream(const std::string& label, std::int64_t layer,
                                    ConstTensorView x) {
  for (auto& reader : readers_)
    if (reader.head().layer > layer)
      add_component(reader, label, project(pick(reader, x), {reader.matrix().view()}));
}

Tensor ComponentCollector::output_factors(const LayerWeights& layer, ConstTensorView z) const {
  Tensor factors({z.dim(0), 1});
  std::fill_n(factors.data<float>(), factors.size(), static_cast<float>(model_.residual_scale));
  if (layer.post_attention_norm.empty()) return factors;
  Tensor output({z.dim(0), model_.d_model});
  linear(z.reshaped({z.dim(0), z.dim(1) * z.dim(2)}), layer.o, output);
  for (std::int64_t i = 0; i < output.size(); ++i)
    output.data<float>()[i] *= static_cast<float>(model_.residual_scale);
  const Tensor scales = norm_scales(output, model_);
  for (std::int64_t row = 0; row < factors.size(); ++row)
    factors.data<float>()[row] /= scales.data<float>()[row];
  return factors;
}

void ComponentCollector::add_heads(std::int64_t layer, ConstTensorView all) {
  const auto& weights = weights_.layers[as_index(layer)];
  const auto d = model_.d_head;
  QKSCOPE_ASSERT(weights.post_attention_norm.bias.empty());
  const Tensor all_factors = output_factors(weights, all);
  for (auto& reader : readers_) {
    if (reader.head().layer <= layer) continue;
    const Tensor z = pick(reader, all);  // (positions, n_heads, d_head)
    const Tensor factors = pick(reader, all_factors);
    const Tensor behind = through_norm(reader.matrix(), weights.post_attention_norm, model_.norm);
    // (d_head, n_heads * d_head): from z of every head to the query or key of the reader.
    const Tensor paths = project(behind, transposed(weights.o.weight));
    for (std::int64_t head = 0; head < model_.n_heads; ++head) {
      const WeightMatrix path{strided_view(paths, head * d, {d, d}, {model_.n_heads * d, 1})};
      Tensor part = project(flatten_heads(copy_heads(z, head, 1)), path);
      scale_rows(part, factors);
      add_component(reader, fmt::format("L{}H{}", layer, head), std::move(part));
    }
    if (weights.o.bias.empty()) continue;
    const auto bias = times(behind, weights.o.bias);
    Tensor part({z.dim(0), d});
    for (std::int64_t i = 0; i < part.size(); ++i)
      part.data<float>()[i] =
          static_cast<float>(bias[as_index(i % d)]) * factors.data<float>()[i / d];
    reader.add_bias(part);
  }
}

void ComponentCollector::add_mlp(std::int64_t layer, ConstTensorView added) {
  const auto label = fmt::format("{}_mlp_out", layer);
  const auto& weights = weights_.layers[as_index(layer)];
  // Behind a norm the bias cannot be told from the rest of the output without its scale.
  const bool splits_bias =
      options_.biases && !weights.down.bias.empty() && weights.post_mlp_norm.empty();
  if (!splits_bias) return add_stream(label, layer, added);
  Tensor rest = copy_of(added);
  std::vector<float> bias = weights.down.bias;
  for (auto& value : bias) value *= static_cast<float>(model_.residual_scale);
  for (std::int64_t i = 0; i < rest.size(); ++i)
    rest.data<float>()[i] -= bias[as_index(i % model_.d_model)];
  add_stream(label, layer, rest);
  for (auto& reader : readers_) {
    if (reader.head().layer <= layer) continue;
    const auto constant = times(reader.matrix(), bias);
    Tensor part({std::ssize(reader.positions()), model_.d_head});
    for (std::int64_t i = 0; i < part.size(); ++i)
      part.data<float>()[i] = static_cast<float>(constant[as_index(i % model_.d_head)]);
    reader.add_bias(part);
  }
}

// post: (rows, chosen experts, d_expert)
void ComponentCollector::add_experts(std::int64_t layer, ConstTensorView post) {
  const auto& weights = weights_.layers[as_index(layer)];
  QKSCOPE_ASSERT(weights.post_mlp_norm.empty());
  const auto by_expert = rows_by_expert(expert_indices_, model_.experts.count);
  const auto width = post.dim(2);
  for (std::int64_t expert = 0; expert < model_.experts.count; ++expert) {
    const auto slots = by_expert.expert_slots(expert);
    if (slots.empty()) continue;
    Tensor inner({std::ssize(slots), width});
    for (std::size_t i = 0; i < slots.size(); ++i)
      std::copy_n(post.data<float>() + slots[i] * width, width,
                  inner.data<float>() + as_index(width) * i);
    Tensor outer({std::ssize(slots), model_.d_model});
    linear(inner, weights.experts[as_index(expert)].down, outer);
    Tensor added({post.dim(0), model_.d_model});
    std::fill_n(added.data<float>(), added.size(), 0.0f);
    for (std::size_t i = 0; i < slots.size(); ++i) {
      const float weight =
          expert_weights_.data<float>()[slots[i]] * static_cast<float>(model_.residual_scale);
      const auto row = slots[i] / by_expert.per_token;
      for (std::int64_t c = 0; c < model_.d_model; ++c)
        added.data<float>()[row * model_.d_model + c] =
            weight * outer.data<float>()[static_cast<std::int64_t>(i) * model_.d_model + c];
    }
    add_stream(fmt::format("L{}E{}", layer, expert), layer, added);
  }
}

}  // namespace qkscope
