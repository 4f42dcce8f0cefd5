// Memory plans for GPUs of different sizes; needs no GPU.
#include <gmock/gmock.h>

#include "base/core/error.h"
#include "capture/run/capture_plan.h"
#include "capture_fixture.h"
#include "engine/device/memory_plan.h"
#include "engine/model/loaded_checkpoint.h"
#include "engine/model/model_config.h"
#include "error_message.h"

namespace qkscope {
namespace {

using testing::HasSubstr;

constexpr BackendOptions kGpu{.device = {Device::Kind::cuda, 0}, .dtype = DType::bf16};
constexpr std::int64_t kPlenty = std::int64_t{1} << 40;

class MemoryPlanning : public testing::Test {
 protected:
  // Wide enough that weights and activations exceed the fixed workspace.
  MemoryPlanning() {
    auto json = load_json(tiny_checkpoint() + "/config.json");
    json["hidden_size"] = 2048;
    json["intermediate_size"] = 8192;
    model_ = parse_model_config(json, "config.json");
    weights_ = device_weight_bytes(model_, DType::bf16);
  }

  MemoryPlan plan(const BatchRequirements& needs, std::int64_t available) const {
    return plan_memory(model_, kGpu, needs, available);
  }

  ModelConfig model_;
  std::int64_t weights_ = 0;
};

TEST_F(MemoryPlanning, LargeGpuHoldsWeightsAndAFullBatch) {
  const auto found = plan({.documents = 1, .max_length = 4096}, kPlenty);
  EXPECT_FALSE(found.streams());
  EXPECT_EQ(found.weights, weights_);
  EXPECT_EQ(found.batch_tokens, kBatchTokens);
  EXPECT_EQ(found.activations, activation_bytes(model_, kBatchTokens, kGpu));
  EXPECT_EQ(plan({.documents = 1, .max_length = 131072}, kPlenty).batch_tokens, 131072);
  EXPECT_EQ(plan({.documents = 4, .max_length = 16384}, kPlenty).batch_tokens, 65536);
  EXPECT_EQ(plan({.documents = 1, .max_length = 64, .tokens = 1000}, kPlenty).batch_tokens, 1000);
  EXPECT_EQ(plan({.documents = 1, .max_length = 4096}, 0).batch_tokens, kBatchTokens);
}

TEST_F(MemoryPlanning, ShrinksBatchesBeforeStreamingWeights) {
  const auto room = activation_bytes(model_, 10'000, kGpu);
  const auto found = plan({.documents = 1, .max_length = 4096}, weights_ + room);
  EXPECT_FALSE(found.streams());
  EXPECT_EQ(found.batch_tokens, 10'000);
  EXPECT_LE(found.held_weights + found.activations, found.available);
}

TEST_F(MemoryPlanning, StreamsWeightsThatDoNotFitBesideADocument) {
  const auto available =
      streamed_weight_bytes(model_, DType::bf16) + activation_bytes(model_, 20'000, kGpu);
  const auto found = plan({.documents = 1, .max_length = 20'000}, available);
  EXPECT_TRUE(found.streams());
  EXPECT_EQ(found.weights, weights_);
  EXPECT_GE(found.batch_tokens, 20'000);
  EXPECT_LE(found.held_weights + found.activations, available);
}

TEST_F(MemoryPlanning, RefusesWithAFittingMaxLength) {
  const auto available =
      streamed_weight_bytes(model_, DType::bf16) + activation_bytes(model_, 20'000, kGpu);
  const auto message =
      bad_input_message([&] { plan({.documents = 2, .max_length = 90'000}, available); });
  EXPECT_THAT(message, HasSubstr("device cuda:0: 2 documents of 90,000 tokens need"));
  const std::string key = "tokenizer.max_length=";
  ASSERT_THAT(message, HasSubstr(key));
  const auto length = std::stoll(message.substr(message.find(key) + key.size()));
  EXPECT_GE(length, 10'000);
  EXPECT_NO_THROW(plan({.documents = 2, .max_length = length}, available));
  EXPECT_THROW(plan({.documents = 2, .max_length = length + 1}, available), Error);
  EXPECT_THAT(bad_input_message([&] { plan({.documents = 1, .max_length = 10}, 1000); }),
              HasSubstr("not even one token fits"));
}

TEST_F(MemoryPlanning, RefusesAnUnlimitedLength) {
  EXPECT_THAT(bad_input_message([&] { plan({.documents = 8, .max_length = INT64_MAX}, kPlenty); }),
              HasSubstr("would fit"));
  EXPECT_GT(plan_memory(model_, {}, {.documents = 8, .max_length = INT64_MAX}, 0).activations, 0);
}

TEST_F(MemoryPlanning, CpuHasNoMemoryLimit) {
  const auto found = plan_memory(model_, {}, {.documents = 3, .max_length = 100}, 0);
  EXPECT_EQ(found.batch_tokens, 300);
  EXPECT_EQ(found.activations, activation_bytes(model_, 300));
  EXPECT_FALSE(found.streams());
}

}  // namespace
}  // namespace qkscope
