// Editing hooks: writing values back unchanged has no effect, changes take effect.
#include <cmath>
#include <cstring>
#include <numeric>

#include <gtest/gtest.h>

#include "engine/forward/forward.h"
#include "golden_model.h"
#include "recorder.h"

namespace qkscope {
namespace {

// Records everything except scores and patterns, and calls `change` at the given points.
class Editor : public Recorder {
 public:
  using Change = std::function<void(TensorView)>;

  Editor(Wanted edited, Change change, std::vector<std::int64_t> rows = {})
      : Recorder([](const std::string&) { return true; }, std::move(rows)),
        edited_(std::move(edited)),
        change_(std::move(change)) {}

  bool edits(HookPoint point) const override { return edited_(hook_name(point)); }

  void edit(HookPoint point, TensorView activation) override {
    change_(activation);
    observe(point, activation);
  }

 private:
  Wanted edited_;
  Change change_;
};

constexpr std::int64_t kLength = 70;  // more than the windows of the tiny models

Batch batch_for(const LoadedCheckpoint& model) {
  std::vector<std::int32_t> ids(kLength);
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<std::int32_t>(i * 37 % static_cast<std::size_t>(model.config.vocab_size));
  Batch batch;
  batch.add(ids);
  batch.add(std::span(ids).first(kLength / 2));  // the squares have keys that this one lacks
  return batch;
}

Recorder plain_run(const LoadedCheckpoint& model) {
  Recorder recorder([](const std::string&) { return true; });
  forward(model, batch_for(model), recorder);
  return recorder;
}

void expect_same_bits(const Tensor& a, const Tensor& b, const std::string& what) {
  EXPECT_EQ(std::memcmp(a.view().bytes(), b.view().bytes(), a.view().size_bytes()), 0) << what;
}

double largest_difference(const Tensor& a, const Tensor& b) {
  double largest = 0.0;
  for (std::int64_t i = 0; i < a.size(); ++i)
    largest = std::max(largest, std::abs(static_cast<double>(a.data<float>()[i]) -
                                         static_cast<double>(b.data<float>()[i])));
  return largest;
}

class Edit : public testing::TestWithParam<const char*> {};

TEST_P(Edit, WritingBackUnchangedValuesChangesNoBit) {
  const auto model = load_golden(GetParam());
  const auto plain = plain_run(model);
  Editor editor([](const std::string& name) { return !name.ends_with("hook_state"); },
                [](TensorView activation) {
                  Tensor copy(activation.shape());
                  std::memcpy(copy.view().bytes(), activation.bytes(), activation.size_bytes());
                  std::memset(activation.bytes(), 0, activation.size_bytes());
                  std::memcpy(activation.bytes(), copy.view().bytes(), activation.size_bytes());
                });
  forward(model, batch_for(model), editor);
  EXPECT_EQ(editor.order, plain.order);
  for (const auto& [name, tensor] : plain.seen)
    expect_same_bits(editor.seen.at(name), tensor, name);
}

TEST_P(Edit, AnEditAtAnyPointReachesTheLogits) {
  const auto model = load_golden(GetParam());
  const auto plain = plain_run(model);
  for (const auto point : hook_points(model.config)) {
    const auto name = hook_name(point);
    if (!can_be_edited(point.stage)) continue;
    const auto last = static_cast<float>(model.config.experts.count - 1);
    Editor editor([&](const std::string& other) { return other == name; },
                  [&](TensorView activation) {
                    for (std::int64_t i = 0; i < activation.size(); ++i) {
                      float& value = activation.data<float>()[i];
                      value = point.stage == Stage::expert_indices ? last - value : 1.5f * value;
                    }
                  });
    forward(model, batch_for(model), editor);
    EXPECT_GT(largest_difference(editor.seen.at("logits"), plain.seen.at("logits")), 0.0) << name;
  }
}

// A constant added to the scores of a query does not change its softmax; this compares the
// edited-row path with the blockwise path.
TEST_P(Edit, AConstantAddedToScoresOnlyChangesRounding) {
  const auto model = load_golden(GetParam());
  if (model.config.has_sinks()) GTEST_SKIP() << "a sink does not move with the scores";
  const auto plain = plain_run(model);
  Editor editor([](const std::string& name) { return name.ends_with("hook_attn_scores"); },
                [](TensorView scores) {
                  for (std::int64_t i = 0; i < scores.size(); ++i) scores.data<float>()[i] += 0.5f;
                });
  forward(model, batch_for(model), editor);
  for (const auto& [name, tensor] : plain.seen) {
    if (!name.ends_with("hook_z") && !name.ends_with("hook_pattern")) continue;
    EXPECT_LT(largest_difference(editor.seen.at(name), tensor), 2e-4)
        << name;  // docs/explanation/numerics.md
  }
}

INSTANTIATE_TEST_SUITE_P(
    Families, Edit,
    testing::Values("llama_gqa", "mistral_window", "qwen3", "smollm3_list", "gemma3_text", "glm4",
                    "mllama_text", "ministral3", "gpt_neox", "gpt2_scaled_by_layer", "olmo2",
                    "gemma2", "qwen3_moe", "mixtral", "gpt_oss", "cohere2", "hunyuan_v1_dense",
                    "nanochat", "glm4_moe", "afmoe", "deepseek_v3", "deepseek_v3_no_q_latent",
                    "llama4_text", "qwen3_5_text", "olmo_hybrid", "lfm2", "falcon_h1",
                    "granitemoehybrid", "nemotron_h", "gemma4_text", "kimi_linear"),
    [](const auto& family) { return std::string(family.param); });

// A query that attends to one key has exactly the value of that key as z, even for keys that were
// masked.
TEST(EditPattern, AOneHotPatternCopiesTheValue) {
  const auto model = load_golden("llama_gqa");
  const auto& config = model.config;
  constexpr std::int64_t kKey = 20;
  Editor editor([](const std::string& name) { return name == "blocks.1.attn.hook_pattern"; },
                [](TensorView pattern) {  // [head, rows, keys]
                  std::memset(pattern.bytes(), 0, pattern.size_bytes());
                  for (std::int64_t row = 0; row < pattern.dim(0) * pattern.dim(1); ++row)
                    pattern.data<float>()[row * pattern.dim(2) + kKey] = 1.0f;
                });
  forward(model, batch_for(model), editor);
  const float* v = editor.seen.at("blocks.1.attn.hook_v").data<float>();
  const float* z = editor.seen.at("blocks.1.attn.hook_z").data<float>();
  for (std::int64_t position = 0; position < kLength; ++position)
    for (std::int64_t head = 0; head < config.n_heads; ++head) {
      const auto kv_head = head / config.heads_per_kv_head();
      EXPECT_EQ(std::memcmp(z + (position * config.n_heads + head) * config.d_head,
                            v + (kKey * config.n_kv_heads + kv_head) * config.d_head,
                            static_cast<std::size_t>(config.d_head) * sizeof(float)),
                0)
          << "position " << position << " head " << head;
    }
}

TEST(EditPattern, OnlySelectedRowsChange) {
  const auto model = load_golden("llama_gqa");
  const auto plain = plain_run(model);
  const std::vector<std::int64_t> rows = {3, 40};
  Editor editor([](const std::string& name) { return name == "blocks.0.attn.hook_attn_scores"; },
                [](TensorView scores) {  // [head, 2, keys]: only the second row is written to
                  for (std::int64_t head = 0; head < scores.dim(0); ++head)
                    scores.data<float>()[(head * 2 + 1) * scores.dim(2)] = 9.0f;
                },
                rows);
  forward(model, batch_for(model), editor);
  const auto name = "blocks.0.attn.hook_z";
  const auto z = editor.seen.at(name).view();
  const auto before = plain.seen.at(name).view();
  for (std::int64_t row = 0; row < z.dim(0); ++row) {
    const auto size = z.rows(row, row + 1).size_bytes();
    const bool same =
        std::memcmp(z.rows(row, row + 1).bytes(), before.rows(row, row + 1).bytes(), size) == 0;
    EXPECT_EQ(same, row != 40) << "row " << row;
  }
}

}  // namespace
}  // namespace qkscope
