// Score attribution with the pass on an NVIDIA GPU.
#include <cmath>
#include <cstdio>

#include <gtest/gtest.h>

#include "golden_text.h"
#include "qkscope/experimental/attribution.h"
#include "qkscope/forward.h"

namespace qkscope {
namespace {

ScoreAttribution attribute_on(const std::string& device, const std::string& dtype,
                              const std::string& name) {
  const auto model =
      Model::load(golden_path(name), {.device = device, .dtype = dtype, .quiet = true});
  const auto tokens = golden_tokens(name);
  return attribute_scores(
      model, tokens,
      {.heads = last_heads(model.config()), .queries = {-1, std::ssize(tokens) / 2}, .keys = "0"});
}

class CudaFamilies : public testing::TestWithParam<std::string> {};

TEST_P(CudaFamilies, Float32AgreesWithTheCpu) {
  if (cuda_device_count() == 0) GTEST_SKIP() << why_no_cuda();
  if (is_refused(Model::load(golden_path(GetParam()), {.device = "cpu", .quiet = true}).config()))
    GTEST_SKIP() << "score attribution refuses this family";
  const auto ours = attribute_on("cuda", "float32", GetParam());
  const auto cpu = attribute_on("cpu", "float32", GetParam());
  ASSERT_EQ(ours.pairs().size(), cpu.pairs().size());
  for (std::size_t pair = 0; pair < ours.pairs().size(); ++pair) {
    const auto a = ours.matrix(pair);
    const auto b = cpu.matrix(pair);
    ASSERT_EQ(a.size(), b.size());
    // The project's bound for a GPU in float32, relative to the sum of all contributions.
    for (std::size_t i = 0; i < a.size(); ++i)
      EXPECT_NEAR(a[i], b[i], 1e-3 * cpu.pairs()[pair].magnitude);
    EXPECT_LT(std::abs(ours.pairs()[pair].residual), 1e-3 * ours.pairs()[pair].magnitude);
  }
}

// bfloat16 rounds the stream after every addition and q and k after every step: a few times 2^-8
// of the sum of absolute contributions.
TEST_P(CudaFamilies, Bfloat16LeavesARoundingResidual) {
  if (cuda_device_count() == 0) GTEST_SKIP() << why_no_cuda();
  if (is_refused(Model::load(golden_path(GetParam()), {.device = "cpu", .quiet = true}).config()))
    GTEST_SKIP() << "score attribution refuses this family";
  const auto found = attribute_on("cuda", "bfloat16", GetParam());
  EXPECT_LT(worst_residual(found), 0.03);
  std::printf("bfloat16 %s: worst residual %.1e\n", GetParam().c_str(), worst_residual(found));
}

INSTANTIATE_TEST_SUITE_P(All, CudaFamilies, testing::ValuesIn(golden_models()),
                         [](const auto& name) { return name.param; });

}  // namespace
}  // namespace qkscope
