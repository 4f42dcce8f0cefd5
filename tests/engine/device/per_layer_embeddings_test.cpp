// Per-layer inputs on the GPU against their formula in float64. Needs an NVIDIA GPU.
#include <cmath>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include "base/core/numbers.h"
#include "device_buffer.h"
#include "engine/device/cuda/residual_updates.h"

namespace qkscope {
namespace {

constexpr std::int64_t kInputModelWidth = 40, kInputWidth = 24, kInputLayers = 3, kInputTokens = 11;
constexpr double kInputEps = 1e-3;

ModelConfig per_layer_model() {
  ModelConfig model;
  model.d_model = kInputModelWidth;
  model.n_heads = model.n_kv_heads = 1;
  model.d_head = 8;
  model.n_layers = kInputLayers;
  model.layers.resize(kInputLayers);
  model.norm_eps = kInputEps;
  model.activation = Activation::gelu_tanh;
  model.per_layer = {.width = kInputWidth, .vocab_size = kInputTokens};
  return model;
}

// Random values as the type holds them, on host and device.
struct RandomMatrix {
  RandomMatrix(std::int64_t row_count, std::int64_t column_count, float scale, DType dtype)
      : rows(row_count), columns(column_count) {
    static std::mt19937 generator(5);
    std::normal_distribution<float> normal(0.0f, scale);
    values.resize(as_index(rows * columns));
    for (auto& value : values) value = normal(generator);
    bytes = encoded(values, dtype);
    values = decoded(bytes, dtype);
  }
  double at(std::int64_t number, std::int64_t column) const {
    return static_cast<double>(values[as_index(number * columns + column)]);
  }
  std::vector<double> row(std::int64_t number) const {
    const auto first = values.begin() + number * columns;
    return {first, first + columns};
  }
  // Row `number` of the matrix times x.
  double times(std::int64_t number, const std::vector<double>& x) const {
    double sum = 0.0;
    for (std::int64_t i = 0; i < columns; ++i) sum += at(number, i) * x[as_index(i)];
    return sum;
  }
  cuda::DeviceLinear linear(const DeviceBuffer& device) const {
    return {.weight = device.get(), .out = rows, .in = columns};
  }

  std::int64_t rows, columns;
  std::vector<float> values;
  std::vector<std::byte> bytes;
};

struct PerLayerWeights {
  explicit PerLayerWeights(DType type) : dtype(type) {}
  DType dtype;
  RandomMatrix embedding{kInputTokens, kInputLayers* kInputWidth, 0.2f, dtype};
  RandomMatrix projection{kInputLayers * kInputWidth, kInputModelWidth, 1.0f, dtype};
  RandomMatrix norm{1, kInputWidth, 1.0f, DType::f32};
  RandomMatrix gate{kInputWidth, kInputModelWidth, 0.2f, dtype};
  RandomMatrix output{kInputModelWidth, kInputWidth, 0.2f, dtype};
};

// The vector that the input of a layer adds to the residual stream x of a token whose embedding is
// `embedded`.
std::vector<double> expected_input_update(const PerLayerWeights& w, std::int64_t layer,
                                          std::int32_t token, const std::vector<double>& embedded,
                                          const std::vector<double>& x) {
  std::vector<double> input(kInputWidth);
  double squares = 0.0;
  for (std::int64_t i = 0; i < kInputWidth; ++i) {
    input[as_index(i)] = w.projection.times(layer * kInputWidth + i, embedded) /
                         std::sqrt(to_double(kInputModelWidth));
    squares += input[as_index(i)] * input[as_index(i)];
  }
  for (std::int64_t i = 0; i < kInputWidth; ++i) {
    const auto normed = input[as_index(i)] /
                        std::sqrt(squares / to_double(kInputWidth) + kInputEps) * w.norm.at(0, i);
    const auto p = (normed + std::sqrt(to_double(kInputWidth)) *
                                 w.embedding.at(token, layer * kInputWidth + i)) /
                   std::sqrt(2.0);
    const double g = w.gate.times(i, x);
    const double gelu =
        0.5 * g * (1.0 + std::tanh(std::sqrt(2.0 / 3.14159265358979) * (g + 0.044715 * g * g * g)));
    input[as_index(i)] = gelu * p;
  }
  std::vector<double> update(kInputModelWidth);
  for (std::int64_t i = 0; i < kInputModelWidth; ++i)
    update[as_index(i)] = w.output.times(i, input);
  return update;
}

double relative_update_error(const Tensor& found, const std::vector<double>& expected) {
  double error = 0.0;
  double size = 0.0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto difference = static_cast<double>(found.data<float>()[i]) - expected[i];
    error += difference * difference;
    size += expected[i] * expected[i];
  }
  return std::sqrt(error / size);
}

class PerLayerEmbeddingsTest : public GpuTest<testing::TestWithParam<DType>> {};

// Runs all layers on all rows, then the last layer on some rows alone.
TEST_P(PerLayerEmbeddingsTest, MatchTheFormula) {
  const auto dtype = GetParam();
  const auto model = per_layer_model();
  const PerLayerWeights w(dtype);
  const DeviceBuffer embedding(w.embedding.bytes), projection(w.projection.bytes),
      norm(w.norm.bytes), gate(w.gate.bytes), output(w.output.bytes);
  Batch batch;
  batch.add(std::vector<std::int32_t>{3, 0, 10, 3, 5});
  batch.add(std::vector<std::int32_t>{7});
  cuda::MatrixMultiplier products(dtype, nullptr);
  cuda::ActivationCopier copies(nullptr);
  cuda::ActiveRows rows(model, dtype, nullptr);
  cuda::Activations activations(model, dtype);
  const cuda::PassContext pass{model, dtype, nullptr, products, rows, activations, copies};
  cuda::ResidualUpdates updates(pass);
  cuda::PerLayerEmbeddings inputs(pass);
  rows.begin_pass(batch);
  activations.begin_pass(batch.rows());
  const RandomMatrix embedded(batch.rows(), kInputModelWidth, 1.0f, dtype);
  const auto put = [&](const std::vector<float>& values, std::int64_t count) {
    copies.overwrite_activation(ConstTensorView(reinterpret_cast<const std::byte*>(values.data()),
                                                DType::f32, {count, kInputModelWidth}),
                                activations.view(ActivationBuffer::residual, count));
  };
  put(embedded.values, batch.rows());
  cuda::DeviceNonLayerWeights shared;
  shared.per_layer_embedding = w.embedding.linear(embedding);
  shared.per_layer_projection = w.projection.linear(projection);
  shared.per_layer_norm.weight = norm.get<float>();
  inputs.embed_tokens(shared);
  cuda::DeviceLayer layer;
  layer.per_layer_gate = w.gate.linear(gate);
  layer.per_layer_output = w.output.linear(output);
  std::vector<std::int64_t> active(as_index(batch.rows()));
  std::iota(active.begin(), active.end(), 0);
  for (std::int64_t number = 0; number <= kInputLayers; ++number) {
    if (number == kInputLayers) {
      active = {1, 4, 5};
      rows.keep_rows(active);
      activations.switch_to_kept_rows(std::ssize(active));
    }
    const RandomMatrix x(std::ssize(active), kInputModelWidth, 1.0f, dtype);
    put(x.values, x.rows);
    const auto last = std::min(number, kInputLayers - 1);
    inputs.add_to_residual(layer, last, updates, ResidualAddMode::at_once);
    std::vector<double> expected;
    for (std::int64_t row = 0; row < x.rows; ++row) {
      const auto source = active[as_index(row)];
      const auto update = expected_input_update(w, last, batch.ids[as_index(source)],
                                                embedded.row(source), x.row(row));
      for (std::int64_t i = 0; i < kInputModelWidth; ++i)
        expected.push_back(x.at(row, i) + update[as_index(i)]);
    }
    const auto found =
        copies.fetch_activation(activations.view(ActivationBuffer::residual, x.rows));
    // A few roundings to the type, each up to half a unit in the last place: 2^-9 for bfloat16.
    const double bound = dtype == DType::f32 ? 1e-6 : dtype == DType::f16 ? 1e-3 : 8e-3;
    EXPECT_LT(relative_update_error(found, expected), bound) << "layer " << number;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, PerLayerEmbeddingsTest,
                         testing::Values(DType::bf16, DType::f16, DType::f32),
                         [](const auto& type) { return std::string(dtype_name(type.param)); });

}  // namespace
}  // namespace qkscope
