#include <cmath>

#include <gtest/gtest.h>

#include "engine/forward/forward.h"
#include "engine/model/loaded_checkpoint.h"
#include "paths.h"
#include "recorder.h"

namespace qkscope {
namespace {

class FoldNorms : public testing::TestWithParam<const char*> {};

TEST_P(FoldNorms, LogitsAgreeWithinTheDocumentedBound) {
  auto model = load_unprocessed_checkpoint(source_path("tests/golden/") + std::string(GetParam()));
  Batch batch;
  batch.add(std::vector<std::int32_t>{1, 5, 9, 2, 6, 5, 3});
  const auto logits = [&] {
    Recorder recorder([](const std::string& name) { return name == "logits"; });
    forward(model, batch, recorder);
    return std::move(recorder.seen.at("logits"));
  };
  const auto before = logits();
  fold_norms(model);
  for (const auto weight : model.weights.final_norm.weight) EXPECT_EQ(weight, 1.0f);
  for (const auto bias : model.weights.final_norm.bias) EXPECT_EQ(bias, 0.0f);
  const auto after = logits();
  // Bound of docs/explanation/numerics.md: one additional rounding per weight.
  for (std::int64_t i = 0; i < before.size(); ++i)
    ASSERT_NEAR(before.data<float>()[i], after.data<float>()[i], 2e-4) << i;
}

INSTANTIATE_TEST_SUITE_P(Families, FoldNorms,
                         testing::Values("llama_bias", "smollm3_list", "qwen3", "gemma3_text",
                                         "glm4", "mllama_text", "mistral3_fp8", "gpt_neox", "gpt2",
                                         "olmo", "olmo2", "granite", "starcoder2", "qwen3_moe",
                                         "gpt_oss_mxfp4", "deepseek_v3", "deepseek_v3_no_q_latent",
                                         "llama4_text", "gemma4_text"),
                         [](const auto& family) { return std::string(family.param); });

}  // namespace
}  // namespace qkscope
