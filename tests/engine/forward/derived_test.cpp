// Derived hook points: norm scales, contributions of heads, inputs of single heads.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>

#include <gtest/gtest.h>

#include "engine/forward/forward.h"
#include "error_message.h"
#include "golden_model.h"
#include "recorder.h"

namespace qkscope {
namespace {

// Models with LayerNorm and RMSNorm, blocked and transposed matrices, GQA, FP8, and clipped q, k
// and v.
const char* const kDerivedFamilies[] = {
    "llama_gqa",    "gpt2",  "gpt_neox", "gpt_neox_one_after_another", "gemma2", "olmo", "phi3",
    "mistral3_fp8", "olmo3", "qwen3"};

Batch some_batch(const LoadedCheckpoint& model) {
  std::mt19937 generator(8);
  Batch batch;
  for (const int length : {11, 5}) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(length));
    for (auto& id : ids)
      id = static_cast<std::int32_t>(generator() % static_cast<unsigned>(model.config.vocab_size));
    batch.add(ids);
  }
  return batch;
}

// Records all points including derived ones, and edits one of them.
class DerivedRecorder : public Recorder {
 public:
  DerivedRecorder() : Recorder([](const std::string&) { return true; }) {}
  bool wants_derived() const override { return true; }
  bool edits(HookPoint point) const override { return change && point == edited; }
  void edit(HookPoint, TensorView tensor) override { change(tensor); }

  HookPoint edited;
  std::function<void(TensorView)> change;
};

const float* values(const Recorder& recorder, const std::string& name) {
  return recorder.seen.at(name).data<float>();
}

bool same_bits(const Recorder& a, const Recorder& b, const std::string& name) {
  return std::memcmp(a.seen.at(name).view().bytes(), b.seen.at(name).view().bytes(),
                     a.seen.at(name).view().size_bytes()) == 0;
}

class Derived : public testing::TestWithParam<const char*> {};

TEST_P(Derived, PointsFireInOrderAndChangeNoActivation) {
  const auto model = load_golden(GetParam());
  const auto batch = some_batch(model);
  DerivedRecorder recorder;
  forward(model, batch, recorder);
  std::vector<std::string> expected;
  for (const auto point : all_hook_points(model.config)) expected.push_back(hook_name(point));
  EXPECT_EQ(recorder.order, expected);
  Recorder plain([](const std::string&) { return true; });
  forward(model, batch, plain);
  for (const auto& [name, tensor] : plain.seen)
    EXPECT_TRUE(same_bits(recorder, plain, name)) << name;
}

TEST_P(Derived, ScalesEqualTheNormDivisors) {
  const auto model = load_golden(GetParam());
  DerivedRecorder recorder;
  forward(model, some_batch(model), recorder);
  const auto n = model.config.d_model;
  for (const auto& [scale, stream] :
       {std::pair<std::string, std::string>{"blocks.0.ln1.hook_scale", "blocks.0.hook_resid_pre"},
        {"blocks.1.ln2.hook_scale", "blocks.1.hook_resid_mid"}}) {
    if (!recorder.seen.contains(scale)) continue;
    ASSERT_EQ(recorder.seen.at(scale).shape(), Shape({16, 1}));
    for (std::int64_t row = 0; row < 16; ++row) {
      double mean = 0.0, squares = 0.0;
      const float* x = values(recorder, stream) + row * n;
      for (std::int64_t i = 0; i < n; ++i) mean += x[i] / static_cast<double>(n);
      if (model.config.norm == NormKind::rms) mean = 0.0;
      for (std::int64_t i = 0; i < n; ++i) squares += (x[i] - mean) * (x[i] - mean);
      const auto expected = std::sqrt(squares / static_cast<double>(n) + model.config.norm_eps);
      EXPECT_NEAR(values(recorder, scale)[row], expected, 1e-6 * expected);
    }
  }
}

// Tolerance for float32 sums in another order.
TEST_P(Derived, HeadResultsSumToTheAttentionOutput) {
  const auto model = load_golden(GetParam());
  const auto& c = model.config;
  if (!c.names.post_attention_norm.empty() || c.residual_scale != 1.0) return;
  DerivedRecorder recorder;
  forward(model, some_batch(model), recorder);
  ASSERT_EQ(recorder.seen.at("blocks.1.attn.hook_result").shape(),
            Shape({16, c.n_heads, c.d_model}));
  const auto& bias = model.weights.layers[1].o.bias;
  for (std::int64_t row = 0; row < 16; ++row)
    for (std::int64_t i = 0; i < c.d_model; ++i) {
      double sum = bias.empty() ? 0.0 : bias[static_cast<std::size_t>(i)];
      for (std::int64_t head = 0; head < c.n_heads; ++head)
        sum +=
            values(recorder, "blocks.1.attn.hook_result")[(row * c.n_heads + head) * c.d_model + i];
      EXPECT_NEAR(values(recorder, "blocks.1.hook_attn_out")[row * c.d_model + i], sum, 2e-5);
    }
}

struct Input {
  Stage stage;
  Stage projection;
};

TEST_P(Derived, AnEditedHeadInputAffectsOnlyThatHead) {
  const auto model = load_golden(GetParam());
  const auto batch = some_batch(model);
  DerivedRecorder plain;
  forward(model, batch, plain);
  for (const auto& [stage, projection] :
       {Input{Stage::q_input, Stage::q}, {Stage::k_input, Stage::k}, {Stage::v_input, Stage::v}}) {
    const HookPoint point{stage, 1};
    const auto name = hook_name({projection, 1});
    const auto heads = plain.seen.at(name).dim(1);
    DerivedRecorder same;
    same.edited = point;
    same.change = [](TensorView) {};
    forward(model, batch, same);
    EXPECT_TRUE(same_bits(same, plain, "logits")) << hook_name(point);

    // The last head reads row 2 instead of row 3.
    DerivedRecorder edited;
    edited.edited = point;
    edited.change = [&](TensorView x) {
      const auto width = x.dim(2);
      std::memcpy(x.data<float>() + (3 * heads + heads - 1) * width,
                  x.data<float>() + (2 * heads + heads - 1) * width,
                  static_cast<std::size_t>(width) * sizeof(float));
    };
    forward(model, batch, edited);
    const auto d = model.config.d_head;
    for (std::int64_t row = 0; row < 16; ++row)
      for (std::int64_t head = 0; head < heads; ++head) {
        const bool moved = row == 3 && head == heads - 1;
        const float* found = values(edited, name) + (row * heads + head) * d;
        const float* expected = values(plain, name) + ((moved ? 2 : row) * heads + head) * d;
        EXPECT_EQ(std::memcmp(found, expected, static_cast<std::size_t>(d) * sizeof(float)), 0)
            << name << " row " << row << " head " << head;
      }
    EXPECT_FALSE(same_bits(edited, plain, "logits"));
  }
}

// Query head h reads copy h; so do key and value head h.
TEST_P(Derived, AnEditedAttentionInputAffectsQKAndVOfItsHead) {
  const auto model = load_golden(GetParam());
  const auto batch = some_batch(model);
  DerivedRecorder plain;
  forward(model, batch, plain);
  const auto width = model.config.d_model;
  for (const std::int64_t chosen : {std::int64_t{0}, model.config.n_heads - 1}) {
    DerivedRecorder edited;
    edited.edited = {Stage::attn_in, 1};
    edited.change = [&](TensorView x) {
      std::memcpy(x.data<float>() + (3 * x.dim(1) + chosen) * width,
                  x.data<float>() + (2 * x.dim(1) + chosen) * width,
                  static_cast<std::size_t>(width) * sizeof(float));
    };
    forward(model, batch, edited);
    EXPECT_FALSE(same_bits(edited, plain, "logits"));
    EXPECT_TRUE(same_bits(edited, plain, "blocks.1.hook_resid_pre"));
    for (const std::string name : {"hook_q_input", "hook_k_input", "hook_v_input", "attn.hook_q",
                                   "attn.hook_k", "attn.hook_v"}) {
      const auto& found = edited.seen.at("blocks.1." + name);
      const float* expected = values(plain, "blocks.1." + name);
      const auto heads = found.dim(1), n = found.dim(2);
      for (std::int64_t row = 0; row < 16; ++row)
        for (std::int64_t head = 0; head < heads; ++head)
          EXPECT_EQ(
              std::memcmp(found.data<float>() + (row * heads + head) * n,
                          expected + ((row == 3 && head == chosen ? 2 : row) * heads + head) * n,
                          static_cast<std::size_t>(n) * sizeof(float)),
              0)
              << name << " row " << row << " head " << head;
    }
  }
}

TEST_P(Derived, AnEditedMlpInputLeavesTheResidualUnchanged) {
  const auto model = load_golden(GetParam());
  if (model.config.parallel_residual) return;
  const auto batch = some_batch(model);
  DerivedRecorder plain;
  forward(model, batch, plain);
  DerivedRecorder edited;
  edited.edited = {Stage::mlp_in, 0};
  edited.change = [](TensorView x) { x.data<float>()[3] += 1.0f; };
  forward(model, batch, edited);
  EXPECT_TRUE(same_bits(edited, plain, "blocks.0.hook_resid_mid"));
  EXPECT_FALSE(same_bits(edited, plain, "blocks.0.hook_mlp_out"));
  for (std::int64_t i = 0; i < model.config.d_model; ++i)
    EXPECT_NEAR(
        values(edited, "blocks.0.hook_resid_post")[i],
        values(plain, "blocks.0.hook_resid_mid")[i] + values(edited, "blocks.0.hook_mlp_out")[i],
        1e-5);
}

INSTANTIATE_TEST_SUITE_P(Families, Derived, testing::ValuesIn(kDerivedFamilies),
                         [](const auto& family) { return std::string(family.param); });

TEST(DerivedPoints, SelectionsReturnOnlyTheSelectedRows) {
  const auto model = load_golden("llama_gqa");
  const auto batch = some_batch(model);
  DerivedRecorder whole;
  forward(model, batch, whole);
  const auto points = derived_hook_points(model.config);
  Collector collector(points, {2, 15});
  forward(model, batch, collector);
  ASSERT_EQ(collector.kept().size(), points.size());
  for (const auto& [point, tensor] : collector.kept()) {
    const auto& all = whole.seen.at(hook_name(point));
    const auto bytes = all.view().rows(2, 3).size_bytes();
    ASSERT_EQ(tensor.dim(0), 2);
    EXPECT_EQ(std::memcmp(tensor.view().bytes(), all.view().rows(2, 3).bytes(), bytes), 0)
        << hook_name(point);
    EXPECT_EQ(std::memcmp(tensor.view().bytes() + bytes, all.view().rows(15, 16).bytes(), bytes), 0)
        << hook_name(point);
  }
}

// Selected rows of head inputs after an edit of the shared attention input.
TEST(DerivedPoints, SelectedRowsShowAnEditOfTheAttentionInput) {
  class LastRows : public DerivedRecorder {
   public:
    Selection selection(HookPoint point) const override {
      if (point.stage != Stage::k_input) return {};
      return {.rows = rows_, .heads = {}};
    }

   private:
    std::vector<std::int64_t> rows_{3, 15};
  } observer;
  const auto model = load_golden("llama_gqa");
  observer.edited = {Stage::attn_in, 1};
  observer.change = [](TensorView x) { std::fill_n(x.data<float>(), x.size(), 2.0f); };
  forward(model, some_batch(model), observer);
  const auto& found = observer.seen.at("blocks.1.hook_k_input");
  ASSERT_EQ(found.shape(), Shape({2, model.config.n_kv_heads, model.config.d_model}));
  EXPECT_EQ(std::count(found.data<float>(), found.data<float>() + found.size(), 2.0f),
            found.size());
}

TEST(DerivedPoints, MatchOnlyPatternsThatEndWithTheirName) {
  const auto model = load_golden("llama_gqa").config;
  const auto count = [&](const std::string& pattern) {
    return match_hooks(model, std::vector<std::string>{pattern}).size();
  };
  const auto layers = static_cast<std::size_t>(model.n_layers);
  EXPECT_EQ(count("*"), hook_points(model).size());
  EXPECT_EQ(count("*hook_result"), layers);
  EXPECT_EQ(count("*hook_scale"), 2 * layers + 1);
  EXPECT_EQ(count("blocks.0.hook_q_input"), 1u);
  EXPECT_EQ(count("blocks.0.*hook_q"), 1u);
}

TEST(DerivedPoints, UneditableOrOversizedPointsThrow) {
  const auto model = load_golden("llama_gqa");
  DerivedRecorder edits;
  edits.edited = {Stage::result, 0};
  edits.change = [](TensorView) {};
  const auto message = bad_input_message([&] { forward(model, some_batch(model), edits); });
  EXPECT_NE(message.find("edit attn.hook_z"), std::string::npos) << message;
  const std::vector<HookPoint> points = {{Stage::result, 0}};
  EXPECT_NE(bad_input_message([&] {
              check_score_size(model.config, points, 1'000'000'000, 1, "--positions");
            }).find("choose positions with --positions"),
            std::string::npos);
}

}  // namespace
}  // namespace qkscope
