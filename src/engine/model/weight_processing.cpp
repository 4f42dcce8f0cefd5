#include "engine/model/weight_processing.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "base/core/error.h"
#include "base/core/thread_pool.h"

namespace qkscope {
namespace {

// The matrix in float32 of the model's own, in place of the file's.
Tensor& own(WeightMatrix& matrix, LoadedCheckpoint& model) {
  model.folded.push_back(to_float32(matrix));
  matrix = {model.folded.back().view(), 1.0f};
  return model.folded.back();
}

void take_off_mean(std::span<float> values) {
  if (values.empty()) return;
  const double mean =
      std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  for (auto& value : values) value = static_cast<float>(static_cast<double>(value) - mean);
}

std::span<float> row_of(Tensor& matrix, std::int64_t row) {
  const auto width = static_cast<std::size_t>(matrix.dim(1));
  return {matrix.data<float>() + static_cast<std::size_t>(row) * width, width};
}

// Of every row: (tokens, d_model)
void center_rows(WeightMatrix& matrix, LoadedCheckpoint& model) {
  if (matrix.values.empty()) return;
  Tensor& values = own(matrix, model);
  parallel_for(values.dim(0), [&](std::int64_t row) { take_off_mean(row_of(values, row)); });
}

// The mean of all rows, in float64: (width)
std::vector<double> mean_row(Tensor& matrix) {
  std::vector<double> mean(static_cast<std::size_t>(matrix.dim(1)), 0.0);
  for (std::int64_t row = 0; row < matrix.dim(0); ++row) {
    const auto values = row_of(matrix, row);
    for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += static_cast<double>(values[i]);
  }
  for (auto& value : mean) value /= static_cast<double>(matrix.dim(0));
  return mean;
}

// Of every column, with the bias: (d_model, inner), what a block writes, or (vocabulary, d_model).
void center_columns(Linear& linear, LoadedCheckpoint& model) {
  if (linear.weight.values.empty()) return;
  Tensor& values = own(linear.weight, model);
  const auto mean = mean_row(values);
  parallel_for(values.dim(0), [&](std::int64_t row) {
    const auto weights = row_of(values, row);
    for (std::size_t i = 0; i < mean.size(); ++i)
      weights[i] = static_cast<float>(static_cast<double>(weights[i]) - mean[i]);
  });
  take_off_mean(linear.bias);
}

// b_O + W_O b_V, with the bias of a value head once for each query head that shares it.
void fold_value_bias(LayerWeights& layer, const ModelConfig& config) {
  const auto values = to_float32(layer.o.weight);  // (d_model, n_heads * d_head)
  std::vector<float> bias;                         // (n_heads * d_head)
  for (std::int64_t head = 0; head < config.n_heads; ++head) {
    const auto* from = layer.v.bias.data() + head / config.heads_per_kv_head() * config.d_head;
    bias.insert(bias.end(), from, from + config.d_head);
  }
  layer.o.bias.resize(static_cast<std::size_t>(config.d_model), 0.0f);
  parallel_for(config.d_model, [&](std::int64_t row) {
    const float* weights = values.data<float>() + row * values.dim(1);
    double sum = 0.0;
    for (std::size_t i = 0; i < bias.size(); ++i)
      sum += static_cast<double>(weights[i]) * static_cast<double>(bias[i]);
    layer.o.bias[static_cast<std::size_t>(row)] += static_cast<float>(sum);
  });
  std::fill(layer.v.bias.begin(), layer.v.bias.end(), 0.0f);
}

}  // namespace

void center_writing_weights(LoadedCheckpoint& model) {
  if (model.config.norm != NormKind::layer)
    bad_input(
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
    bad_input(
        "center_unembed: {} caps its logits at {}: the probabilities would change; leave it out",
        model.config.family, model.config.logit_softcap);
  center_columns(model.weights.head, model);
}

void fold_value_biases(LoadedCheckpoint& model) {
  auto& config = model.config;
  if (config.has_sinks())
    bad_input(
        "fold_value_biases: {} has learned sinks, so that a pattern does not add up to one: leave "
        "it "
        "out",
        config.family);
  if (!config.qkv_bias) return;
  if (config.has_sinks())
    bad_input("fold_value_biases: {} has sinks, which take part of every pattern: leave it out",
              config.family);
  if (config.qkv_clip > 0.0)
    bad_input("fold_value_biases: {} clips its values at {}: leave it out", config.family,
              config.qkv_clip);
  for (auto& layer : model.weights.layers)
    if (!layer.v.bias.empty()) fold_value_bias(layer, config);
  config.output_bias = true;
}

}  // namespace qkscope
