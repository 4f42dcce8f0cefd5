#include <algorithm>
#include <numeric>
#include <span>
#include <vector>

#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/thread_pool.h"
#include "engine/model/loaded_checkpoint.h"
#include "engine/ops/linear.h"

namespace qkscope {
namespace {

// Replaces a matrix with a float32 copy that the model owns, and returns the copy.
Tensor& replace_with_float32(WeightMatrix& matrix, LoadedCheckpoint& model) {
  model.folded.push_back(to_float32(matrix));
  matrix = {model.folded.back().view(), 1.0f};
  return model.folded.back();
}

void subtract_mean(std::span<float> values) {
  if (values.empty()) return;
  const double mean =
      std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  for (auto& value : values) value = static_cast<float>(static_cast<double>(value) - mean);
}

std::span<float> matrix_row(Tensor& matrix, std::int64_t row) {
  const auto width = as_index(matrix.dim(1));
  return {matrix.data<float>() + as_index(row) * width, width};
}

// Subtracts the mean from each row of a (tokens, d_model) matrix.
void center_rows(WeightMatrix& matrix, LoadedCheckpoint& model) {
  if (matrix.values.empty()) return;
  Tensor& values = replace_with_float32(matrix, model);
  parallel_for(values.dim(0), [&](std::int64_t row) { subtract_mean(matrix_row(values, row)); });
}

// Centres the columns and the bias of a (d_model, n) or (vocabulary, d_model) layer to mean 0.
void center_columns(Linear& linear, LoadedCheckpoint& model) {
  if (linear.weight.values.empty()) return;
  Tensor& values = replace_with_float32(linear.weight, model);
  std::vector<double> mean(as_index(values.dim(1)), 0.0);  // over rows
  for (std::int64_t row = 0; row < values.dim(0); ++row) {
    const auto weights = matrix_row(values, row);
    for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += static_cast<double>(weights[i]);
  }
  for (auto& value : mean) value /= static_cast<double>(values.dim(0));
  parallel_for(values.dim(0), [&](std::int64_t row) {
    const auto weights = matrix_row(values, row);
    for (std::size_t i = 0; i < mean.size(); ++i)
      weights[i] = static_cast<float>(static_cast<double>(weights[i]) - mean[i]);
  });
  subtract_mean(linear.bias);
}

// Value bias folding: b_O += W_O b_V; query heads of a group repeat the bias of their value head.
void fold_value_bias(LayerWeights& layer, const ModelConfig& config) {
  const auto values = to_float32(layer.o.weight);  // (d_model, n_heads * d_head)
  std::vector<float> bias;                         // (n_heads * d_head)
  for (std::int64_t head = 0; head < config.n_heads; ++head) {
    const auto* from = layer.v.bias.data() + head / config.heads_per_kv_head() * config.d_head;
    bias.insert(bias.end(), from, from + config.d_head);
  }
  layer.o.bias.resize(as_index(config.d_model), 0.0f);
  parallel_for(config.d_model, [&](std::int64_t row) {
    const float* weights = values.data<float>() + row * values.dim(1);
    double sum = 0.0;
    for (std::size_t i = 0; i < bias.size(); ++i)
      sum += static_cast<double>(weights[i]) * static_cast<double>(bias[i]);
    layer.o.bias[as_index(row)] += static_cast<float>(sum);
  });
  std::ranges::fill(layer.v.bias, 0.0f);
}

// Norm folding: W (g x + c) + b = W' x + b' for a norm with weight g and bias c: column i of W' is
// g_i W_i, and b' = b + W c. A LayerNorm output has mean 0, so the rows of W' are centred.
void fold_norm(Linear& linear, const NormWeights& norm, LoadedCheckpoint& model) {
  Tensor& folded = replace_with_float32(linear.weight, model);
  if (!norm.bias.empty()) linear.bias.resize(as_index(folded.dim(0)), 0.0f);
  parallel_for(folded.dim(0), [&](std::int64_t row) {
    const auto weights = matrix_row(folded, row);
    double constant = 0.0;
    for (std::size_t i = 0; i < norm.bias.size(); ++i)
      constant += static_cast<double>(weights[i]) * static_cast<double>(norm.bias[i]);
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] *= norm.weight[i];
    if (model.config.norm == NormKind::layer) subtract_mean(weights);
    if (!norm.bias.empty()) linear.bias[as_index(row)] += static_cast<float>(constant);
  });
}

// Folds a norm into all matrices that read its output, then sets its weights to 1 and biases to 0.
void fold_norm(NormWeights& norm, const std::vector<Linear*>& readers, LoadedCheckpoint& model) {
  if (norm.empty()) return;
  for (auto* linear : readers)
    if (!linear->weight.values.empty()) fold_norm(*linear, norm, model);
  std::ranges::fill(norm.weight, 1.0f);
  std::ranges::fill(norm.bias, 0.0f);
}

}  // namespace

Tensor to_float32(const WeightMatrix& matrix) {
  return translate_exceptions([&] {
    Tensor result({matrix.out(), matrix.in()});
    weights_to_float32(matrix, {.first = 0, .rows = matrix.out(), .begin = 0, .depth = matrix.in()},
                       result.data<float>());
    return result;
  });
}

void fold_norms(LoadedCheckpoint& model) {
  if (model.config.has_recurrence())
    reject(
        "fold_norms: {} has layers with linear attention ({}), whose norms are not folded: leave "
        "it out",
        model.config.family, mixer_name(model.config.mixer.kind));
  for (auto& layer : model.weights.layers) {
    auto& latent = layer.latent;
    std::vector<Linear*> readers = {&layer.q, &layer.k, &layer.v, &layer.attention_gate};
    if (model.config.has_latent_attention())  // the norms of the latents stay
      readers = {model.config.latent.q_rank > 0 ? &latent.q : &layer.q, &latent.kv,
                 &latent.rotated_key};
    fold_norm(layer.input_norm, readers, model);
    readers = {&layer.gate, &layer.up, &layer.router};
    for (auto& expert : layer.experts) readers.insert(readers.end(), {&expert.gate, &expert.up});
    fold_norm(layer.mlp_norm, readers, model);
  }
  fold_norm(model.weights.final_norm, std::vector{&model.weights.head}, model);
  if (!model.config.norm_bias) return;
  // Folding a norm with bias adds a bias to matrices that had none.
  for (auto& layer : model.weights.layers)
    if (!layer.down.weight.values.empty())
      layer.down.bias.resize(as_index(model.config.d_model), 0.0f);
  model.config.qkv_bias = model.config.mlp_bias = true;
}

void center_writing_weights(LoadedCheckpoint& model) {
  if (model.config.norm != NormKind::layer)
    reject(
        "center_writing_weights: {} normalises with RMSNorm, which does not take off the mean: "
        "the model would compute something else; leave it out",
        model.config.family);
  auto& weights = model.weights;
  center_rows(weights.embedding, model);
  center_rows(weights.positions, model);
  for (auto& layer : weights.layers) {
    center_columns(layer.o, model);
    center_columns(layer.down, model);
  }
}

void center_unembed(LoadedCheckpoint& model) {
  if (model.config.logit_softcap > 0.0)
    reject("center_unembed: {} caps its logits at {}: the probabilities would change; leave it out",
           model.config.family, model.config.logit_softcap);
  center_columns(model.weights.head, model);
}

void fold_value_biases(LoadedCheckpoint& model) {
  auto& config = model.config;
  if (config.has_sinks())
    reject(
        "fold_value_biases: {} has learned sinks, so that a pattern does not add up to one: leave "
        "it out",
        config.family);
  if (!config.qkv_bias) return;
  if (config.has_attention_gate())
    reject("fold_value_biases: {} multiplies values by a gate: leave it out", config.family);
  if (config.v_norm)
    reject("fold_value_biases: {} normalises its values: leave it out", config.family);
  if (config.qkv_clip > 0.0)
    reject("fold_value_biases: {} clips its values at {}: leave it out", config.family,
           config.qkv_clip);
  for (auto& layer : model.weights.layers)
    if (!layer.v.bias.empty()) fold_value_bias(layer, config);
  config.output_bias = true;
}

}  // namespace qkscope
