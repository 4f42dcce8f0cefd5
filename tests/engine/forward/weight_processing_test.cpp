#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "base/core/error.h"
#include "engine/forward/forward.h"
#include "engine/model/loaded_checkpoint.h"
#include "error_message.h"
#include "paths.h"
#include "recorder.h"

namespace qkscope {
namespace {

LoadedCheckpoint tiny(const std::string& family) {
  return load_unprocessed_checkpoint(source_path("tests/golden/") + family);
}

// Returns the logits, shape (rows, vocabulary).
Tensor logits_of(const LoadedCheckpoint& model) {
  Batch batch;
  batch.add(std::vector<std::int32_t>{1, 5, 9, 2, 6, 5, 3});
  Recorder recorder([](const std::string& name) { return name == "logits"; });
  forward(model, batch, recorder);
  return std::move(recorder.seen.at("logits"));
}

double mean_of(const float* values, std::int64_t count) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < count; ++i) sum += static_cast<double>(values[i]);
  return sum / static_cast<double>(count);
}

// Compares logits up to a constant per row if `centred`. Bound of docs/explanation/numerics.md: one
// additional rounding per weight.
void expect_same(const Tensor& before, const Tensor& after, bool centred) {
  const auto width = before.dim(1);
  for (std::int64_t row = 0; row < before.dim(0); ++row) {
    const float* a = before.data<float>() + row * width;
    const float* b = after.data<float>() + row * width;
    const double shift = centred ? mean_of(a, width) - mean_of(b, width) : 0.0;
    for (std::int64_t i = 0; i < width; ++i)
      ASSERT_NEAR(static_cast<double>(a[i]), static_cast<double>(b[i]) + shift, 2e-4) << row;
  }
}

class Rewriting : public testing::TestWithParam<const char*> {};

TEST_P(Rewriting, AllRewritesKeepLogitsOfLayerNormModels) {
  auto model = tiny(GetParam());
  const auto before = logits_of(model);
  center_writing_weights(model);
  expect_same(before, logits_of(model), false);
  const auto out = to_float32(model.weights.layers[1].down.weight);  // (d_model, d_mlp)
  double sum = 0.0;
  for (std::int64_t i = 0; i < out.dim(0); ++i)
    sum += static_cast<double>(out.data<float>()[i * out.dim(1)]);
  EXPECT_NEAR(sum, 0.0, 1e-5);
  fold_norms(model);
  center_unembed(model);
  fold_value_biases(model);
  const auto after = logits_of(model);
  expect_same(before, after, true);
  EXPECT_NEAR(mean_of(after.data<float>(), after.dim(1)), 0.0, 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Families, Rewriting,
                         testing::Values("gpt2", "gpt_neox", "gpt_neox_one_after_another",
                                         "starcoder2", "starcoder2_no_bias"),
                         [](const auto& family) { return std::string(family.param); });

class ValueBiases : public testing::TestWithParam<const char*> {};

TEST_P(ValueBiases, MoveIntoTheOutputProjectionWithoutChangingLogits) {
  auto model = tiny(GetParam());
  const auto before = logits_of(model);
  fold_value_biases(model);
  for (const auto bias : model.weights.layers[0].v.bias) EXPECT_EQ(bias, 0.0f);
  EXPECT_EQ(model.config.output_bias, !model.weights.layers[0].o.bias.empty());
  expect_same(before, logits_of(model), false);
}

INSTANTIATE_TEST_SUITE_P(Families, ValueBiases,
                         testing::Values("qwen2", "llama_bias", "llama_gqa", "gpt2", "glm4"),
                         [](const auto& family) { return std::string(family.param); });

TEST(WeightProcessing, RewritesThatChangeTheModelThrow) {
  auto rms = tiny("llama_gqa");
  EXPECT_THROW(center_writing_weights(rms), Error);
  auto capped = tiny("gemma2");
  EXPECT_THROW(center_unembed(capped), Error);
  auto with_sinks = tiny("gpt_oss");
  EXPECT_THROW(fold_value_biases(with_sinks), Error);
  auto hybrid = tiny("olmo_hybrid");
  const auto message = bad_input_message([&] { fold_norms(hybrid); });
  EXPECT_TRUE(message.starts_with("fold_norms: olmo_hybrid has layers with linear attention"))
      << message;
}

}  // namespace
}  // namespace qkscope
