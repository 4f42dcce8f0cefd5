#include <algorithm>
#include <span>

#include <gmock/gmock.h>

#include "analysis/viewer/head_attention.h"
#include "error_message.h"
#include "qkscope/forward.h"
#include "viewed_model.h"

namespace qkscope {
namespace {

constexpr std::int64_t kTokens = 300;

std::vector<float> values(const HeadVectors& head, std::int64_t count) {
  std::vector<float> all(head.q, head.q + count);
  all.insert(all.end(), head.k, head.k + count);
  return all;
}

TEST(QueryKeyStoragePlan, KeepsAllLayersWhereTheyFit) {
  const auto config = read_model_config(golden_path("smollm3_list"));
  const auto plan = plan_query_key_storage(config, {}, DType::f32, kTokens, std::int64_t{1} << 30);
  EXPECT_FALSE(plan.recomputes_layers());
  EXPECT_EQ(plan.kept_layers, config.n_layers);
  EXPECT_EQ(plan.layer_bytes, kTokens * (config.n_heads + config.n_kv_heads) * config.d_head * 4);
  EXPECT_THAT(describe_storage_plan(plan), testing::HasSubstr("keeps q and k of all 4 layers"));
}

TEST(QueryKeyStoragePlan, IsWithinItsMemoryOrRefused) {
  const auto config = read_model_config(golden_path("smollm3_list"));
  const auto all = plan_query_key_storage(config, {}, DType::f32, kTokens, std::int64_t{1} << 30);
  bool recomputed = false;
  for (auto memory = all.memory_bytes() - 1; memory > all.pass_bytes; memory -= all.layer_bytes / 3)
    try {
      const auto plan = plan_query_key_storage(config, {}, DType::f32, kTokens, memory);
      EXPECT_LE(plan.memory_bytes(), memory);
      EXPECT_TRUE(plan.recomputes_layers());
      EXPECT_GE(plan.kept_layers, 2);
      recomputed = true;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_input);
      EXPECT_THAT(error.what(), testing::HasSubstr("--memory"));
      break;
    }
  EXPECT_TRUE(recomputed);
}

// Recomputed layers start from a residual snapshot; every bit must be that of the whole pass.
TEST(QueryKeyStore, RecomputedLayersAreBitIdentical) {
  const auto model = golden_model("smollm3_list");
  const auto ids = some_tokens(kTokens);
  auto whole = viewed_model(model, ids);
  const auto& config = model->config();
  const auto count = kTokens * config.d_head;
  for (std::int64_t step = 1; step <= 3; ++step) {
    auto plan = whole.plan();
    plan.kept_layers = 2;
    plan.snapshot_step = step;
    QueryKeyStore store(model, ids, plan, true);
    for (const std::int64_t layer : {0, 3, 1, 2, 0})
      for (std::int64_t head = 0; head < config.n_heads; ++head)
        EXPECT_EQ(values(store.head_vectors(layer, head), count),
                  values(whole.head_vectors(layer, head), count))
            << "layer " << layer << " head " << head << " step " << step;
  }
}

TEST(QueryKeyStore, SixteenBitStorageRoundsToTheType) {
  const auto model = golden_model("llama_gqa");
  const auto ids = some_tokens(40);
  auto exact = viewed_model(model, ids);
  auto plan = exact.plan();
  plan.dtype = DType::bf16;
  QueryKeyStore store(model, ids, plan, true);
  const auto count = 40 * model->config().d_head;
  const auto found = values(store.head_vectors(1, 3), count);
  const auto expected = values(exact.head_vectors(1, 3), count);
  for (std::size_t i = 0; i < found.size(); ++i)
    // bfloat16 has 8 significant bits: rounding changes a value by at most 2^-8 of it.
    EXPECT_NEAR(found[i], expected[i], std::abs(expected[i]) / 256) << i;
}

// A GPU hands over q and k in its own type, without a conversion to float32.
TEST(QueryKeyStore, OfAGpuEqualsTheHooks) {
  if (cuda_device_count() == 0) GTEST_SKIP() << why_no_cuda();
  const auto model = std::make_shared<Model>(
      Model::load(golden_path("llama_gqa"), {.device = "cuda", .dtype = "bfloat16"}));
  const auto& config = model->config();
  const auto ids = some_tokens(kTokens);
  auto store = viewed_model(model, ids);
  EXPECT_EQ(store.plan().dtype, DType::bf16);
  const std::vector<std::string> patterns = {"*hook_rot_q"};
  Collector collector(match_hooks(config, patterns), {});
  Batch batch;
  batch.add(ids);
  model->run(batch, collector);
  for (const auto& [point, q] : collector.kept())
    for (std::int64_t head = 0; head < config.n_heads; ++head) {
      const auto vectors = store.head_vectors(point.layer, head);
      for (std::int64_t row = 0; row < kTokens; ++row)
        for (std::int64_t i = 0; i < config.d_head; ++i)
          ASSERT_EQ(vectors.q[row * config.d_head + i],
                    q.data<float>()[(row * config.n_heads + head) * config.d_head + i])
              << hook_name(point) << " head " << head << " row " << row;
    }
}

}  // namespace
}  // namespace qkscope
