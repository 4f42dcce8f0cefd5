#include "qkscope/experimental/generate.h"

#include <algorithm>
#include <cstring>

#include <gtest/gtest.h>

#include "cached_model.h"
#include "error_message.h"

namespace qkscope {
namespace {

const Ids kPrompt = {5, 17, 3, 38, 41, 9};

Model load_demo() {
  return Model::load(source_path("share/demo/checkpoints/S3-4720"), {.device = "cpu"});
}

GenerateOptions new_tokens(std::int64_t count) {
  GenerateOptions options;
  options.max_new_tokens = count;
  options.stops_at_end = false;
  return options;
}

Generated generate_one(const Model& model, const Ids& prompt, const GenerateOptions& options) {
  return generate(model, std::vector<Ids>{prompt}, options).front();
}

// Reference: greedy generation by passes over the whole text.
Ids without_cache(const Model& model, Ids ids, std::int64_t count) {
  const auto begin = ids.size();
  for (std::int64_t i = 0; i < count; ++i) {
    Batch batch;
    batch.add(ids);
    Recorder recorder([](const std::string& name) { return name == "logits"; });
    recorder.looked_at = {batch.rows() - 1};
    model.run(batch, recorder);
    const auto& logits = recorder.seen.at("logits");
    const float* row = logits.data<float>();
    ids.push_back(static_cast<std::int32_t>(std::max_element(row, row + logits.size()) - row));
  }
  return {ids.begin() + static_cast<long>(begin), ids.end()};
}

// Models with sliding windows, NoPE layers, learned positions, and RoPE frequencies that change
// with the length.
TEST(Generate, CachedGenerationMatchesWholePasses) {
  for (const auto* name :
       {"llama_gqa", "mistral_window", "smollm3_windows", "gpt2", "gpt_neox", "rope_dynamic_long",
        "rope_longrope_long", "ministral3", "qwen3_5_text", "olmo_hybrid", "lfm2_bias",
        "falcon_h1_norm", "granitemoehybrid", "nemotron_h_experts", "gemma4_text", "kimi_linear",
        "kimi_linear_one_tensor"}) {
    const auto model = load_golden(name);
    const auto found = generate_one(model, kPrompt, new_tokens(40));
    EXPECT_EQ(found.ids, without_cache(model, kPrompt, 40)) << name;
    EXPECT_EQ(found.end, GenerateEnd::length);
  }
}

TEST(Generate, ChangedRopeFrequenciesRerunTheText) {
  const auto model = load_golden("rope_dynamic_long");
  const auto made_for = model.config().ropes[0].max_positions;
  const Ids prompt(static_cast<std::size_t>(made_for - 2), 7);
  EXPECT_EQ(generate_one(model, prompt, new_tokens(6)).ids, without_cache(model, prompt, 6));
}

TEST(Generate, BatchedTextsMatchSeparateRuns) {
  const auto model = load_golden("qwen2");
  const std::vector<Ids> prompts = {kPrompt, {4}, {1, 2, 3}};
  auto options = new_tokens(12);
  options.temperature = 10.0;
  options.seed = 3;
  const auto without_stop = generate_one(model, kPrompt, options).ids;
  options.stop_tokens = {without_stop[4]};
  const auto together = generate(model, prompts, options);
  ASSERT_EQ(together.size(), 3u);
  EXPECT_EQ(together[0].end, GenerateEnd::stop_token);
  EXPECT_LT(together[0].ids.size(), together[2].ids.size());
  EXPECT_EQ(together[0].ids.back(), without_stop[4]);
  EXPECT_EQ(generate_one(model, kPrompt, options).ids, together[0].ids);
  // Texts 2 and 3 have their own random streams; alone, they would be text 1.
  EXPECT_EQ(generate(model, std::vector<Ids>{{9}, {4}, {1, 2, 3}}, options)[2].ids,
            together[2].ids);
}

TEST(Generate, TextsEndAtTheLastLearnedPosition) {
  const auto model = load_golden("gpt2");
  const auto room = model.config().max_positions;
  const auto found =
      generate_one(model, Ids(static_cast<std::size_t>(room - 3), 1), new_tokens(50));
  EXPECT_EQ(found.ids.size(), 3u);
  EXPECT_EQ(found.end, GenerateEnd::length);
}

TEST(Generate, StreamedPiecesFormTheDecodedText) {
  const auto model = load_demo();
  const auto tokenizer = Tokenizer::load(model.folder());
  const auto prompt = tokenizer.encode("Entry 1, day 5.").ids;
  auto options = new_tokens(30);
  options.tokenizer = &tokenizer;
  std::string streamed;
  Ids ids;
  options.on_token = [&](const GeneratedToken& token) {
    streamed += token.text;
    ids.push_back(token.id);
    return true;
  };
  const auto found = generate_one(model, prompt, options);
  EXPECT_EQ(found.ids.size(), 30u);
  EXPECT_EQ(found.ids, ids);
  EXPECT_EQ(found.text, streamed);
  auto whole = prompt;
  whole.insert(whole.end(), ids.begin(), ids.end());
  EXPECT_EQ(tokenizer.decode(prompt, true) + streamed, tokenizer.decode(whole, true));
  // A stop text ends the same text earlier.
  options.stop_texts = {found.text.substr(found.text.size() / 2, 3)};
  streamed.clear();
  const auto stopped = generate_one(model, prompt, options);
  EXPECT_EQ(stopped.end, GenerateEnd::stop_text);
  EXPECT_EQ(stopped.text, found.text.substr(0, found.text.find(options.stop_texts[0])));
  EXPECT_EQ(streamed, stopped.text);
  EXPECT_LT(stopped.ids.size(), 30u);
}

TEST(Generate, CallbackReturningFalseEndsTheText) {
  const auto model = load_golden("llama_gqa");
  auto options = new_tokens(20);
  int calls = 0;
  options.on_token = [&](const GeneratedToken&) { return ++calls < 4; };
  const auto found = generate_one(model, kPrompt, options);
  EXPECT_EQ(found.ids.size(), 4u);
  EXPECT_EQ(found.end, GenerateEnd::callback);
  options.on_token = [](const GeneratedToken&) -> bool { throw 7; };
  EXPECT_THROW(generate_one(model, kPrompt, options), int);
}

TEST(Generate, EndTokensComeFromTheCheckpoint) {
  EXPECT_EQ(end_tokens(load_demo()), Ids({0}));
}

// Counts rows, and makes one token the most likely.
class Steers : public Recorder {
 public:
  Steers()
      : Recorder([](const std::string& name) {
          return name == "logits" || name == "blocks.0.hook_resid_pre" ||
                 name == "blocks.1.attn.hook_pattern";
        }) {}
  bool edits(HookPoint point) const override { return point.stage == Stage::logits; }
  void edit(HookPoint, TensorView logits) override {
    EXPECT_EQ(logits.dim(0), 1);
    logits.data<float>()[23] = 1e6f;
  }
  void observe(HookPoint point, ConstTensorView activation) override {
    if (point.stage == Stage::resid_pre) rows.push_back(activation.dim(0));
    if (point.stage == Stage::pattern) keys.push_back(activation.dim(2));
  }
  std::vector<std::int64_t> rows, keys;
};

TEST(Generate, ObserverSeesPromptThenTokensAndCanEditLogits) {
  const auto model = load_golden("llama_gqa");
  auto options = new_tokens(3);
  Steers steers;
  options.observer = &steers;
  EXPECT_EQ(generate_one(model, kPrompt, options).ids, Ids({23, 23, 23}));
  EXPECT_EQ(steers.rows, (std::vector<std::int64_t>{6, 1, 1}));
  EXPECT_EQ(steers.keys, (std::vector<std::int64_t>{6, 7, 8}));
}

TEST(Generate, InvalidOptionsThrow) {
  const auto model = load_golden("llama_gqa");
  const auto error_message = [&](auto change) {
    auto options = new_tokens(2);
    change(options);
    return bad_input_message([&] { generate_one(model, kPrompt, options); });
  };
  EXPECT_NE(error_message([](auto& o) { o.max_new_tokens = 0; }).find("at least 1"),
            std::string::npos);
  EXPECT_NE(error_message([](auto& o) { o.temperature = -1; }).find("temperature is -1"),
            std::string::npos);
  EXPECT_NE(error_message([](auto& o) { o.top_p = 0; }).find("top_p is 0"), std::string::npos);
  EXPECT_NE(error_message([](auto& o) { o.top_k = -3; }).find("top_k is -3"), std::string::npos);
  EXPECT_NE(error_message([](auto& o) { o.stop_texts = {"x"}; }).find("need a tokenizer"),
            std::string::npos);
  EXPECT_NE(bad_input_message([&] { generate(model, {}); }).find("no prompt"), std::string::npos);
  EXPECT_NE(bad_input_message([&] { generate_one(model, {}, new_tokens(1)); }).find("no tokens"),
            std::string::npos);
  EXPECT_NE(
      bad_input_message([&] { generate_one(model, {-4}, new_tokens(1)); }).find("token id -4"),
      std::string::npos);
}

}  // namespace
}  // namespace qkscope
