// A pass that starts from residuals at a layer equals the rest of a full pass.
#include <cstring>
#include <random>

#include <gtest/gtest.h>

#include "engine/forward/forward.h"
#include "error_message.h"
#include "golden_model.h"
#include "recorder.h"

namespace qkscope {
namespace {

Batch random_batch(std::initializer_list<std::int64_t> lengths, std::int64_t vocabulary) {
  std::mt19937 generator(3);
  Batch batch;
  for (const auto length : lengths) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(length));
    for (auto& id : ids)
      id = static_cast<std::int32_t>(generator() % static_cast<unsigned>(vocabulary));
    batch.add(ids);
  }
  return batch;
}

bool everything(const std::string&) {
  return true;
}

void expect_same_bits(const Recorder& whole, const Recorder& part) {
  for (const auto& [name, tensor] : part.seen)
    EXPECT_EQ(std::memcmp(whole.seen.at(name).view().bytes(), tensor.view().bytes(),
                          tensor.view().size_bytes()),
              0)
        << name;
}

class StartAtLayer : public testing::TestWithParam<const char*> {};

TEST_P(StartAtLayer, ShowsTheSameActivationsFromThatLayerOn) {
  const auto model = load_golden(GetParam());
  const auto batch = random_batch({20, 1, 33}, model.config.vocab_size);
  Recorder whole(everything);
  forward(model, batch, whole);
  for (std::int64_t layer = 0; layer <= model.config.n_layers; ++layer) {
    const HookPoint before = layer < model.config.n_layers
                                 ? HookPoint{Stage::resid_pre, layer}
                                 : HookPoint{Stage::resid_post, layer - 1};
    if (!whole.seen.contains(hook_name(before))) continue;  // cross-attention
    Batch rows;
    for (const auto& sequence : batch.sequences) rows.add_positions(sequence.length);
    Recorder rest(everything);
    forward(model, rows, rest,
            {.residual = whole.seen.at(hook_name(before)), .start_at_layer = layer});
    expect_same_bits(whole, rest);
    EXPECT_TRUE(rest.seen.contains("logits"));
    EXPECT_FALSE(rest.seen.contains("hook_embed"));
    EXPECT_EQ(rest.seen.contains("blocks.0.hook_resid_pre"), layer == 0);
  }
}

TEST_P(StartAtLayer, SelectedRowsHaveTheBitsOfAFullRun) {
  const auto model = load_golden(GetParam());
  const auto batch = random_batch({20, 1, 33}, model.config.vocab_size);
  Recorder whole(everything);
  forward(model, batch, whole);
  for (const auto* name : {"logits", "blocks.1.hook_resid_pre"}) {
    Recorder some([&](const std::string& other) { return other == name; });
    some.looked_at = {3, 20, 53};
    forward(model, batch, some,
            {.residual = whole.seen.at("blocks.1.hook_resid_pre"), .start_at_layer = 1});
    for (std::size_t i = 0; i < some.looked_at.size(); ++i) {
      const auto row = static_cast<std::int64_t>(i);
      const auto expected =
          whole.seen.at(name).view().rows(some.looked_at[i], some.looked_at[i] + 1);
      EXPECT_EQ(std::memcmp(some.seen.at(name).view().rows(row, row + 1).bytes(), expected.bytes(),
                            expected.size_bytes()),
                0)
          << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, StartAtLayer,
                         testing::Values("llama_gqa", "gpt2", "gpt_neox", "gemma2", "olmo3",
                                         "mistral_window_long", "gemma4_equal_heads"),
                         [](const auto& family) { return std::string(family.param); });

TEST(Start, InvalidStartsThrow) {
  const auto model = load_golden("llama_gqa");
  const auto batch = random_batch({4}, model.config.vocab_size);
  const auto error_message = [&](const RunOptions& options) {
    Recorder recorder(everything);
    return bad_input_message([&] { forward(model, batch, recorder, options); });
  };
  const Tensor residual({4, model.config.d_model});
  const Tensor short_one({3, model.config.d_model});
  EXPECT_NE(
      error_message({.residual = residual, .start_at_layer = 99}).find("found 99, expected 0 to"),
      std::string::npos);
  EXPECT_NE(error_message({.residual = {}, .start_at_layer = 1}).find("none is given"),
            std::string::npos);
  EXPECT_NE(error_message({.residual = short_one, .start_at_layer = 1}).find("shape [3, "),
            std::string::npos);
}

TEST(Start, MixerOutputsOfAnEarlierPassAreDropped) {
  const auto model = load_golden("qwen3_next");
  const auto last = model.config.n_layers - 1;  // attention, so this pass computes no mixer
  const auto resid_pre = hook_name({Stage::resid_pre, last});
  const auto batch = random_batch({20, 33}, model.config.vocab_size);
  Recorder whole(everything);
  forward(model, batch, whole);
  const auto backend = make_backend(model);
  Recorder state([](const std::string& name) {
    return name == hook_name({Stage::mixer_state, 0});
  });
  forward(*backend, random_batch({2}, model.config.vocab_size), state, {});
  Recorder some([](const std::string& name) { return name == "logits"; });
  some.looked_at = {52};
  forward(*backend, batch, some, {.residual = whole.seen.at(resid_pre), .start_at_layer = last});
  const auto expected = whole.seen.at("logits").view().rows(52, 53);
  EXPECT_EQ(
      std::memcmp(some.seen.at("logits").view().bytes(), expected.bytes(), expected.size_bytes()),
      0);
}

TEST(Start, ModelsWhoseLayersNeedEarlierOnesStartWithTokens) {
  const auto model = load_golden("gemma4_text");
  const auto batch = random_batch({4}, model.config.vocab_size);
  const Tensor residual({4, model.config.d_model});
  Recorder recorder(everything);
  EXPECT_EQ(bad_input_message([&] { forward(model, batch, recorder, {.residual = residual}); }),
            "residual: layers of gemma4_text use the tokens or keys of earlier layers; start with "
            "tokens");
}

// Edits early in the network, and selects rows of the logits.
class EditsZ : public Recorder {
 public:
  EditsZ()
      : Recorder([](const std::string& n) { return n == "logits" || n.ends_with("hook_z"); }) {}
  bool edits(HookPoint point) const override { return point.stage == Stage::z; }
  void edit(HookPoint, TensorView z) override { std::memset(z.bytes(), 0, 64); }
};

TEST(PassPlan, EarlyEditsStillAllowRowSelectionOfLogits) {
  const auto model = load_golden("llama_gqa");
  const auto batch = random_batch({9}, model.config.vocab_size);
  EditsZ whole;
  forward(model, batch, whole);
  EditsZ some;
  some.looked_at = {2, 7};
  const PassPlan plan(model.config, some, batch.rows());
  EXPECT_TRUE(plan.drops_rows_in(model.config.n_layers));
  forward(model, batch, some);
  ASSERT_EQ(some.seen.at("logits").dim(0), 2);
  for (const std::int64_t row : {0, 1}) {
    const auto expected = whole.seen.at("logits").view().rows(row == 0 ? 2 : 7, row == 0 ? 3 : 8);
    EXPECT_EQ(std::memcmp(some.seen.at("logits").view().rows(row, row + 1).bytes(),
                          expected.bytes(), expected.size_bytes()),
              0);
  }
}

}  // namespace
}  // namespace qkscope
