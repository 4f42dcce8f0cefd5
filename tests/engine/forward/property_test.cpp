// Properties of every model: packing, hooks, prefixes and threads change nothing.
#include <algorithm>
#include <cstring>
#include <random>

#include <gtest/gtest.h>

#include "base/core/error.h"
#include "base/core/thread_pool.h"
#include "engine/forward/forward.h"
#include "error_message.h"
#include "golden_model.h"
#include "recorder.h"

namespace qkscope {
namespace {

const char* const kFamilies[] = {"llama_gqa",
                                 "llama_long",
                                 "mistral_window_long",
                                 "ministral3",
                                 "qwen2_windows",
                                 "qwen3",
                                 "smollm3_list",
                                 "mllama_text",
                                 "gemma3_text",
                                 "gemma4_text",
                                 "gemma4_equal_heads",
                                 "glm4",
                                 "rope_yarn",
                                 "mistral3_fp8",
                                 "gpt_neox",
                                 "gpt2_scaled_by_layer",
                                 "olmo",
                                 "olmo3",
                                 "phi3",
                                 "granite_bias",
                                 "starcoder2",
                                 "gemma2",
                                 "apertus",
                                 "qwen3_moe",
                                 "mixtral",
                                 "gpt_oss",
                                 "gpt_oss_mxfp4",
                                 "cohere2",
                                 "exaone4",
                                 "olmoe",
                                 "seed_oss",
                                 "ernie4_5",
                                 "glm4_moe",
                                 "hunyuan_v1_dense",
                                 "nanochat",
                                 "ernie4_5_moe",
                                 "minimax_m2",
                                 "afmoe",
                                 "deepseek_v2",
                                 "deepseek_v3",
                                 "deepseek_v3_no_q_latent",
                                 "llama4_text",
                                 "llama4_text_two_experts",
                                 "qwen3_next_long",
                                 "qwen3_5_text",
                                 "olmo_hybrid",
                                 "olmo_hybrid_rope",
                                 "lfm2",
                                 "falcon_h1",
                                 "falcon_h1_norm",
                                 "granitemoehybrid_dense",
                                 "nemotron_h",
                                 "nemotron_h_bias",
                                 "kimi_linear_long",
                                 "kimi_linear_sparse"};

std::vector<std::int32_t> random_ids(std::int64_t count, std::int64_t vocabulary, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
  for (auto& id : ids)
    id = static_cast<std::int32_t>(generator() % static_cast<unsigned>(vocabulary));
  return ids;
}

// Recurrent states are squares too: by default they have one row per sequence.
bool everything_but_squares(const std::string& name) {
  return !name.ends_with("hook_pattern") && !name.ends_with("hook_attn_scores") &&
         !name.ends_with("hook_state");
}

Recorder run(const LoadedCheckpoint& model, const std::vector<std::vector<std::int32_t>>& sequences,
             const Recorder::Wanted& wanted = everything_but_squares) {
  Batch batch;
  for (const auto& sequence : sequences) batch.add(sequence);
  Recorder recorder(wanted);
  forward(model, batch, recorder);
  return recorder;
}

// Expects rows [begin, begin + rows of part) of `whole` to equal `part` bit for bit.
void expect_same_bits(const Recorder& whole, const Recorder& part, std::int64_t begin) {
  for (const auto& [name, tensor] : part.seen) {
    const auto rows = whole.seen.at(name).view().rows(begin, begin + tensor.dim(0));
    EXPECT_EQ(std::memcmp(rows.bytes(), tensor.view().bytes(), tensor.view().size_bytes()), 0)
        << name;
  }
}

class Property : public testing::TestWithParam<const char*> {};

TEST_P(Property, PackedSequencesHaveTheBitsOfSeparateRuns) {
  const auto model = load_golden(GetParam());
  std::vector<std::vector<std::int32_t>> sequences;
  for (const auto length : {37, 1, 300, 16, 129, 2})
    sequences.push_back(random_ids(length, model.config.vocab_size, static_cast<unsigned>(length)));
  const auto packed = run(model, sequences);
  std::int64_t begin = 0;
  for (const auto& sequence : sequences) {
    expect_same_bits(packed, run(model, {sequence}), begin);
    begin += static_cast<std::int64_t>(sequence.size());
  }
}

TEST_P(Property, APrefixHasTheBitsOfTheLongerSequence) {
  const auto model = load_golden(GetParam());
  const auto ids = random_ids(400, model.config.vocab_size, 7);
  const auto whole = run(model, {ids});
  for (const auto length : {1, 2, 17, 64, 255, 256, 257, 399})
    expect_same_bits(whole, run(model, {{ids.begin(), ids.begin() + length}}), 0);
}

TEST_P(Property, HooksDoNotChangeLogits) {
  const auto model = load_golden(GetParam());
  const auto ids = random_ids(150, model.config.vocab_size, 3);
  const auto alone = run(model, {ids}, [](const std::string& name) { return name == "logits"; });
  const auto watched = run(model, {ids}, [](const std::string&) { return true; });
  EXPECT_EQ(alone.seen.size(), 1u);
  expect_same_bits(watched, alone, 0);
}

TEST_P(Property, ThreadCountChangesNoBit) {
  const auto model = load_golden(GetParam());
  const auto ids = random_ids(333, model.config.vocab_size, 5);
  set_thread_count(1);
  const auto one = run(model, {ids});
  for (const int threads : {2, 3, 7}) {
    set_thread_count(threads);
    expect_same_bits(run(model, {ids}), one, 0);
  }
  set_thread_count(0);
}

TEST_P(Property, EveryHookPointFiresOnceInOrder) {
  const auto model = load_golden(GetParam());
  const auto recorder = run(model, {random_ids(9, model.config.vocab_size, 1)},
                            [](const std::string&) { return true; });
  std::vector<std::string> expected;
  for (const auto point : hook_points(model.config)) expected.push_back(hook_name(point));
  EXPECT_EQ(recorder.order, expected);
}

// Stopping early shows the same activations as a full run.
TEST_P(Property, StoppingAtAnyStageChangesNoEarlierActivation) {
  const auto model = load_golden(GetParam());
  const auto ids = random_ids(40, model.config.vocab_size, 2);
  const auto whole = run(model, {ids}, [](const std::string&) { return true; });
  for (const auto point : hook_points(model.config)) {
    const auto name = hook_name(point);
    const auto alone = run(model, {ids}, [&](const std::string& other) { return other == name; });
    ASSERT_EQ(alone.order, std::vector<std::string>{name});
    expect_same_bits(whole, alone, 0);
  }
}

// Dropping rows at the end of the network changes no bit of the selected rows.
TEST_P(Property, SelectedRowsHaveTheBitsOfAFullRun) {
  const auto model = load_golden(GetParam());
  Batch batch;
  for (const auto length : {300, 1, 37})
    batch.add(random_ids(length, model.config.vocab_size, static_cast<unsigned>(length)));
  Recorder whole(everything_but_squares);
  forward(model, batch, whole);
  for (const auto point : hook_points(model.config)) {
    const auto name = hook_name(point);
    if (!everything_but_squares(name)) continue;
    Recorder some([&](const std::string& other) { return other == name; });
    some.looked_at = {0, 3, 150, 255, 256, 299, 300, 301, 337};
    forward(model, batch, some);
    const auto& part = some.seen.at(name);
    ASSERT_EQ(part.dim(0), static_cast<std::int64_t>(some.looked_at.size())) << name;
    for (std::size_t i = 0; i < some.looked_at.size(); ++i) {
      const auto row = static_cast<std::int64_t>(i);
      const auto expected =
          whole.seen.at(name).view().rows(some.looked_at[i], some.looked_at[i] + 1);
      EXPECT_EQ(std::memcmp(part.view().rows(row, row + 1).bytes(), expected.bytes(),
                            expected.size_bytes()),
                0)
          << name << " row " << some.looked_at[i];
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Property, testing::ValuesIn(kFamilies),
                         [](const auto& family) { return std::string(family.param); });

TEST(Forward, ScoresOfSelectedRowsAreRowsOfTheFullSquare) {
  const auto model = load_golden("mistral_window_long");
  const auto ids = random_ids(260, model.config.vocab_size, 4);
  const auto wanted = [](const std::string& name) { return !everything_but_squares(name); };
  const auto square = run(model, {ids}, wanted);
  const std::vector<std::int64_t> rows = {0, 3, 99, 100, 259};
  Batch batch;
  batch.add(ids);
  Recorder chosen(wanted, rows);
  forward(model, batch, chosen);
  for (const auto& [name, tensor] : chosen.seen) {
    const auto& whole = square.seen.at(name);
    for (std::int64_t head = 0; head < tensor.dim(0); ++head)
      for (std::size_t i = 0; i < rows.size(); ++i)
        EXPECT_TRUE(std::equal(
            whole.data<float>() + (head * 260 + rows[i]) * 260,
            whole.data<float>() + (head * 260 + rows[i] + 1) * 260,
            tensor.data<float>() + (head * tensor.dim(1) + static_cast<std::int64_t>(i)) * 260))
            << name << " row " << rows[i];
  }
}

// z = pattern v: blockwise attention against the plain product.
TEST(Forward, ZIsThePatternTimesV) {
  for (const auto* name : {"llama_gqa", "mistral_window_long", "gemma3_text"}) {
    const auto model = load_golden(name);
    const auto& config = model.config;
    const auto recorder = run(model, {random_ids(300, config.vocab_size, 6)},
                              [](const std::string&) { return true; });
    const float* pattern = recorder.seen.at("blocks.0.attn.hook_pattern").data<float>();
    const float* v = recorder.seen.at("blocks.0.attn.hook_v").data<float>();
    const float* z = recorder.seen.at("blocks.0.attn.hook_z").data<float>();
    double worst = 0.0;
    for (std::int64_t row = 0; row < 300; ++row)
      for (std::int64_t head = 0; head < config.n_heads; ++head)
        for (std::int64_t d = 0; d < config.d_head; ++d) {
          double sum = 0.0;
          for (std::int64_t key = 0; key <= row; ++key)
            sum += static_cast<double>(pattern[(head * 300 + row) * 300 + key]) *
                   v[(key * config.n_kv_heads + head / config.heads_per_kv_head()) * config.d_head +
                     d];
          worst =
              std::max(worst, std::abs(sum - z[(row * config.n_heads + head) * config.d_head + d]));
        }
    EXPECT_LT(worst, 1e-5) << name;  // float32 sums of up to 300 terms of order 1
  }
}

TEST(Forward, InvalidTokensAreNamedInTheError) {
  const auto model = load_golden("llama_gqa");
  const auto error_message = [&](std::vector<std::int32_t> ids) -> std::string {
    try {
      run(model, {std::move(ids)});
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_input);
      return error.what();
    }
    return "";
  };
  EXPECT_NE(error_message({1, 2, 100000}).find("token id 100000 at position 2"), std::string::npos);
  EXPECT_NE(error_message({-1}).find("token id -1"), std::string::npos);
  EXPECT_NE(error_message({}).find("no tokens"), std::string::npos);
}

TEST(Forward, ATextBeyondTheLearnedPositionsThrows) {
  const auto model = load_golden("gpt2");
  const auto message = bad_input_message([&] { run(model, {random_ids(65, 96, 1)}); });
  EXPECT_NE(message.find("65 tokens is longer than the 64 positions"), std::string::npos)
      << message;
}

TEST(Collector, KeepsSelectedRowsOfItsPoints) {
  const auto model = load_golden("llama_gqa");
  const auto& config = model.config;
  Batch batch;
  batch.add(random_ids(20, config.vocab_size, 8));
  const std::vector<HookPoint> points = {{Stage::rot_q, 1}, {Stage::pattern, 1}, {Stage::logits}};
  Collector collector(points, {3, 19});
  forward(model, batch, collector);
  ASSERT_EQ(collector.kept().size(), 3u);
  for (std::size_t i = 0; i < points.size(); ++i) EXPECT_EQ(collector.kept()[i].point, points[i]);
  EXPECT_EQ(collector.kept()[0].activation.shape(), Shape({2, config.n_heads, config.d_head}));
  EXPECT_EQ(collector.kept()[1].activation.shape(), Shape({config.n_heads, 2, 20}));
  EXPECT_EQ(collector.kept()[2].activation.shape(), Shape({2, config.vocab_size}));
}

TEST(Collector, OversizedScoresThrow) {
  const auto model = load_golden("llama_gqa").config;
  const std::vector<HookPoint> points = {{Stage::attn_scores, 0}};
  check_score_size(model, points, 100, 1'000, "--positions");
  EXPECT_THROW(check_score_size(model, points, 1'000'000, 1'000'000, "--positions"), Error);
}

// Nonexistent rows and heads throw before anything runs.
TEST(Collector, NonexistentRowsAndHeadsThrow) {
  const auto model = load_golden("llama_gqa");
  Batch batch;
  batch.add(random_ids(20, model.config.vocab_size, 8));
  for (const auto stage : {Stage::rot_q, Stage::pattern})
    for (const std::int64_t row : {-1, 20}) {
      Collector collector({{stage, 1}}, {3, row});
      const auto message = bad_input_message([&] { forward(model, batch, collector); });
      EXPECT_NE(message.find("row " + std::to_string(row)), std::string::npos) << message;
    }
}

// The state after a chosen row is the last state of the text that ends there.
TEST(Collector, StatesOfChosenRowsAreThoseOfShorterTexts) {
  const auto model = load_golden("olmo_hybrid");
  const auto& delta = model.config.mixer;
  const auto ids = random_ids(150, model.config.vocab_size, 8);
  const HookPoint point{Stage::mixer_state, 1};
  const auto states = [&](std::span<const std::int32_t> text, std::vector<std::int64_t> rows) {
    Batch batch;
    batch.add(text);
    batch.add(text);
    Collector collector({point}, std::move(rows));
    forward(model, batch, collector);
    return std::move(collector.kept().front().activation);
  };
  const auto chosen = states(ids, {9, 63, 64, 149, 250});
  EXPECT_EQ(chosen.shape(), Shape({5, delta.value_heads, delta.d_key, delta.d_value}));
  std::int64_t number = 0;
  for (const std::size_t length : {10, 64, 65, 150, 101}) {
    const auto last = states(std::span(ids).first(length), {});
    ASSERT_EQ(last.dim(0), 2);  // one per sequence
    for (const std::int64_t sequence : {0, 1}) {
      const auto expected = last.view().rows(sequence, sequence + 1);
      EXPECT_EQ(std::memcmp(chosen.view().rows(number, number + 1).bytes(), expected.bytes(),
                            expected.size_bytes()),
                0)
          << length;
    }
    ++number;
  }
}

// A stage that a family does not compute has no hook point.
TEST(Hooks, ExistOnlyForStagesOfTheFamily) {
  const auto has = [](const std::string& name, const std::string& hook) {
    const auto points = hook_points(load_golden(name).config);
    return std::any_of(points.begin(), points.end(),
                       [&](HookPoint point) { return hook_name(point) == hook; });
  };
  EXPECT_TRUE(has("gpt2", "hook_pos_embed"));
  EXPECT_FALSE(has("llama_gqa", "hook_pos_embed"));
  EXPECT_TRUE(has("gpt_neox_one_after_another", "blocks.0.hook_resid_mid"));
  EXPECT_FALSE(has("gpt_neox", "blocks.0.hook_resid_mid"));
  EXPECT_TRUE(has("olmo", "blocks.0.ln1.hook_normalized"));
  EXPECT_FALSE(has("olmo2", "blocks.0.ln1.hook_normalized"));
  EXPECT_FALSE(has("olmo2", "blocks.0.ln2.hook_normalized"));
  EXPECT_TRUE(has("olmo2", "blocks.0.attn.hook_q_normed"));
  EXPECT_FALSE(has("apertus", "blocks.0.mlp.hook_pre_linear"));
  EXPECT_TRUE(has("apertus", "blocks.0.mlp.hook_post"));
}

TEST(Hooks, LayersWithoutAttentionHaveHooksOfTheirMixer) {
  const auto model = load_golden("qwen3_next_long").config;  // attention in layer 3 of 4
  const auto names_of = [&](const std::vector<std::string>& patterns) {
    std::vector<std::string> names;
    for (const auto point : match_hooks(model, patterns)) names.push_back(hook_name(point));
    return names;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names_of({"blocks.*.attn.hook_z"}), Names{"blocks.3.attn.hook_z"});
  EXPECT_EQ(names_of({"blocks.*.mixer.hook_state"}),
            (Names{"blocks.0.mixer.hook_state", "blocks.1.mixer.hook_state",
                   "blocks.2.mixer.hook_state"}));
  EXPECT_EQ(names_of({"blocks.0.*"}),
            (Names{"blocks.0.hook_resid_pre", "blocks.0.ln1.hook_normalized",
                   "blocks.0.mixer.hook_in", "blocks.0.mixer.hook_state", "blocks.0.mixer.hook_out",
                   "blocks.0.hook_resid_mid", "blocks.0.ln2.hook_normalized",
                   "blocks.0.mlp.hook_pre", "blocks.0.mlp.hook_pre_linear",
                   "blocks.0.mlp.hook_post", "blocks.0.hook_mlp_out", "blocks.0.hook_resid_post"}));
  for (const auto* name : {"blocks.0.attn.hook_q", "blocks.0.hook_attn_out", "blocks.0.attn.*"}) {
    const auto message = bad_input_message([&] { names_of({name}); });
    EXPECT_EQ(message, std::string("hook '") + name +
                           "': layer 0 of this qwen3_next model has no attention; layers with "
                           "attention are 3");
  }
  EXPECT_THROW(names_of({"blocks.3.mixer.hook_in"}), Error);
}

// Layers of Kimi Linear have latent attention or Kimi Delta Attention.
TEST(Hooks, LatentsOfAHybridModelAreThoseOfLayersWithAttention) {
  const auto model = load_golden("kimi_linear_long").config;  // attention in layer 2 of 4
  const auto names_of = [&](const std::string& pattern) {
    std::vector<std::string> names;
    for (const auto point : match_hooks(model, std::vector{pattern}))
      names.push_back(hook_name(point));
    return names;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names_of("blocks.*.attn.hook_kv_latent"), Names{"blocks.2.attn.hook_kv_latent"});
  EXPECT_EQ(names_of("blocks.*.attn.hook_rot_q"), Names{"blocks.2.attn.hook_rot_q"});
  EXPECT_EQ(names_of("*.mixer.hook_state"),
            (Names{"blocks.0.mixer.hook_state", "blocks.1.mixer.hook_state",
                   "blocks.3.mixer.hook_state"}));
  EXPECT_THROW(names_of("blocks.2.mixer.hook_in"), Error);
  EXPECT_EQ(bad_input_message([&] { names_of("blocks.0.attn.hook_kv_latent"); }),
            "hook 'blocks.0.attn.hook_kv_latent': layer 0 of this kimi_linear model has no "
            "attention; layers with attention are 2");
}

// Layers of Nemotron-H have one part; those of Falcon-H1 have attention and a mixer.
TEST(Hooks, LayersOfOnePartHaveTheHooksOfThatPart) {
  const auto names_of = [](const char* model, const std::string& pattern) {
    std::vector<std::string> names;
    for (const auto point : match_hooks(load_golden(model).config, std::vector{pattern}))
      names.push_back(hook_name(point).substr(std::string("blocks.0.").size()));
    return names;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names_of("nemotron_h", "blocks.0.*"),
            (Names{"hook_resid_pre", "ln1.hook_normalized", "mixer.hook_in", "mixer.hook_state",
                   "mixer.hook_out", "hook_resid_post"}));
  EXPECT_EQ(names_of("nemotron_h", "blocks.1.*"),
            (Names{"hook_resid_pre", "ln2.hook_normalized", "mlp.hook_pre", "mlp.hook_post",
                   "hook_mlp_out", "hook_resid_post"}));
  const auto attention = names_of("nemotron_h", "blocks.2.*");
  EXPECT_EQ(attention.back(), "hook_resid_post");
  EXPECT_EQ(attention[attention.size() - 2], "hook_attn_out");
  EXPECT_EQ(names_of("falcon_h1", "blocks.0.mixer.*"),
            (Names{"mixer.hook_in", "mixer.hook_state", "mixer.hook_out"}));
  EXPECT_EQ(names_of("falcon_h1", "blocks.0.attn.hook_rot_q"), Names{"attn.hook_rot_q"});
}

TEST(Hooks, PatternsMatchAndTyposGetASuggestion) {
  const auto model = load_golden("smollm3_list").config;
  const std::vector<std::string> all_q = {"blocks.*.attn.hook_rot_q", "logits"};
  EXPECT_EQ(match_hooks(model, all_q).size(), static_cast<std::size_t>(model.n_layers) + 1);
  const std::vector<std::string> typo = {"blocks.0.attn.hook_rot_w"};
  try {
    match_hooks(model, typo);
    FAIL() << "a hook that does not exist was found";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean 'blocks.0.attn.hook_rot_q'"),
              std::string::npos)
        << error.what();
  }
  const std::vector<std::string> normed = {"blocks.0.attn.hook_q_normed"};
  EXPECT_THROW(match_hooks(model, normed), Error);  // SmolLM3 has no q/k norm
}

}  // namespace
}  // namespace qkscope
