// Passes that continue from a KV cache have the bits of a pass over the whole text.
#include <cstring>

#include <gtest/gtest.h>

#include "cached_model.h"
#include "error_message.h"

namespace qkscope {
namespace {

bool everything(const std::string&) {
  return true;
}

bool is_score_hook(const std::string& name) {
  return name.ends_with("hook_pattern") || name.ends_with("hook_attn_scores");
}

Recorder whole_pass(const Model& model, const Ids& ids) {
  Batch batch;
  batch.add(ids);
  Recorder recorder(everything);
  model.run(batch, recorder);
  return recorder;
}

// Expects `part` to equal the last rows of `whole`.
void expect_last_rows(const Recorder& whole, const Recorder& part, const std::string& where) {
  ASSERT_EQ(whole.seen.size(), part.seen.size());
  for (const auto& [name, tensor] : part.seen) {
    const auto& all = whole.seen.at(name);
    const int axis = is_score_hook(name) ? 1 : 0;
    const auto heads = axis == 1 ? tensor.dim(0) : 1;
    const auto rows = tensor.dim(axis);
    const auto first = all.dim(axis) - rows;
    const auto width = tensor.size() / (heads * rows);
    ASSERT_EQ(width, all.size() / (heads * all.dim(axis))) << name << where;
    for (std::int64_t head = 0; head < heads; ++head)
      EXPECT_EQ(std::memcmp(tensor.data<float>() + head * rows * width,
                            all.data<float>() + (head * all.dim(axis) + first) * width,
                            static_cast<std::size_t>(rows * width) * sizeof(float)),
                0)
          << name << where;
  }
}

// Runs a text in pieces and compares each piece with a pass over the whole prefix.
void expect_same_bits(const Model& model, const Ids& ids, std::initializer_list<int> pieces) {
  KeyValueCache cache(model, 1, std::ssize(ids));
  std::size_t end = 0;
  for (const auto piece : pieces) {
    end += static_cast<std::size_t>(piece);
    if (!cache.can_extend(0, piece)) cache.shorten(0, 0);
    const auto there = static_cast<std::size_t>(cache.length(0));
    Batch batch;
    cache.add_to(batch, 0, std::span(ids).subspan(there, end - there));
    Recorder recorder(everything);
    cache.run(batch, recorder);
    EXPECT_EQ(cache.length(0), static_cast<std::int64_t>(end));
    expect_last_rows(whole_pass(model, {ids.begin(), ids.begin() + static_cast<long>(end)}),
                     recorder, " at " + std::to_string(end));
  }
}

class Cached : public testing::TestWithParam<std::string> {};

TEST_P(Cached, RowsHaveTheBitsOfAWholePass) {
  const auto model = load_golden(GetParam());
  expect_same_bits(model, random_ids(50, model.config().vocab_size, 5), {20, 1, 1, 27, 1});
}

INSTANTIATE_TEST_SUITE_P(Golden, Cached, testing::ValuesIn(golden_models()),
                         [](const auto& model) { return model.param; });

// Attention processes keys in blocks of 256.
TEST(KeyValueCache, PiecesMayCrossKeyBlocks) {
  for (const auto* name : {"llama_gqa", "mistral_window_long", "gemma2", "gemma4_text"}) {
    const auto model = load_golden(name);
    expect_same_bits(model, random_ids(520, model.config().vocab_size, 9),
                     {250, 5, 1, 1, 1, 253, 1, 1});
  }
}

// Gated delta nets and Mamba 2 process chunks of 64 tokens, Kimi Delta Attention single tokens.
TEST(KeyValueCache, PiecesMayCrossChunksOfARecurrence) {
  for (const auto* name : {"qwen3_next_long", "olmo_hybrid", "lfm2", "falcon_h1",
                           "granitemoehybrid_dense", "nemotron_h", "kimi_linear_long"}) {
    const auto model = load_golden(name);
    expect_same_bits(model, random_ids(200, model.config().vocab_size, 9),
                     {62, 1, 1, 1, 2, 61, 70, 1});
  }
}

// A recurrent state cannot go back, and a pass that throws does not change it.
TEST(KeyValueCache, ARecurrentStateIsForgottenOrKept) {
  const auto model = load_golden("olmo_hybrid");
  const auto ids = random_ids(40, model.config().vocab_size, 6);
  KeyValueCache cache(model, 1, 40);
  const auto run = [&](Observer& observer, std::size_t begin, std::size_t count) {
    Batch batch;
    cache.add_to(batch, 0, std::span(ids).subspan(begin, count));
    cache.run(batch, observer);
  };
  Recorder first(everything);
  run(first, 0, 30);
  struct Thrower : Recorder {
    Thrower() : Recorder(everything) {}
    void observe(HookPoint point, ConstTensorView) override {
      if (point.stage == Stage::resid_post && point.layer == 2) throw std::runtime_error("stop");
    }
  } thrower;
  EXPECT_THROW(run(thrower, 30, 10), std::runtime_error);
  EXPECT_EQ(cache.length(0), 30);
  Recorder second(everything);
  run(second, 30, 10);
  expect_last_rows(whole_pass(model, ids), second, " after an exception");
  cache.shorten(0, 40);
  EXPECT_EQ(cache.length(0), 40);
  cache.shorten(0, 39);
  EXPECT_EQ(cache.length(0), 0);
}

// Only some sequences of different lengths continue together.
class SharedCache : public testing::TestWithParam<const char*> {};

TEST_P(SharedCache, SequencesDoNotSeeEachOther) {
  const auto model = load_golden(GetParam());
  const auto vocabulary = model.config().vocab_size;
  const std::vector<Ids> texts = {random_ids(30, vocabulary, 1), random_ids(9, vocabulary, 2),
                                  random_ids(300, vocabulary, 3)};
  KeyValueCache cache(model, 3, 300);
  const auto logits = [](const std::string& name) { return name == "logits"; };
  const auto step = [&](const std::vector<std::pair<std::int64_t, std::int64_t>>& ends) {
    Batch batch;
    for (const auto& [text, end] : ends) {
      const auto there = cache.length(text);
      cache.add_to(
          batch, text,
          std::span(texts[static_cast<std::size_t>(text)])
              .subspan(static_cast<std::size_t>(there), static_cast<std::size_t>(end - there)));
    }
    Recorder recorder(logits);
    cache.run(batch, recorder);
    for (std::size_t i = 0; i < ends.size(); ++i) {
      const auto& [text, end] = ends[i];
      const auto& ids = texts[static_cast<std::size_t>(text)];
      const auto whole = whole_pass(model, {ids.begin(), ids.begin() + end});
      const auto& sequence = batch.sequences[i];
      const auto part =
          recorder.seen.at("logits").view().rows(sequence.begin, sequence.begin + sequence.length);
      const auto expected = whole.seen.at("logits").view().rows(end - sequence.length, end);
      EXPECT_EQ(std::memcmp(part.bytes(), expected.bytes(), part.size_bytes()), 0)
          << "text " << text << " at " << end;
    }
  };
  step({{0, 20}, {1, 8}, {2, 299}});
  step({{0, 21}, {2, 300}});
  step({{1, 9}, {0, 30}});
  cache.shorten(0, 12);
  step({{0, 13}});
}

INSTANTIATE_TEST_SUITE_P(Golden, SharedCache,
                         testing::Values("smollm3_list", "qwen3_5_text", "gemma4_text"),
                         [](const auto& model) { return std::string(model.param); });

// Layers 4 and 5 of the model use the keys of layers 2 and 3, which a cache holds once.
TEST(KeyValueCache, KeysOfOtherLayersCannotBeEdited) {
  const auto model = load_golden("gemma4_text");
  struct KeyEditor : Recorder {
    explicit KeyEditor(std::int64_t number) : Recorder(everything), layer(number) {}
    bool edits(HookPoint point) const override { return point == HookPoint{Stage::rot_k, layer}; }
    void edit(HookPoint point, TensorView keys) override { observe(point, keys); }
    std::int64_t layer;
  };
  KeyValueCache cache(model, 1, 10);
  const auto run = [&](std::int64_t layer) {
    Batch batch;
    cache.add_to(batch, 0, Ids(3, 1));
    KeyEditor editor(layer);
    cache.run(batch, editor);
  };
  EXPECT_EQ(bad_input_message([&] { run(5); }),
            "observer: blocks.5.attn.hook_rot_k holds the cached keys of layer 3; edit "
            "blocks.3.attn.hook_rot_k");
  run(3);
  EXPECT_EQ(cache.length(0), 3);
}

// Zeroes the attention of the last query to cached keys.
TEST(KeyValueCache, AnEditedPatternUsesCachedValues) {
  const auto model = load_golden("llama_gqa");
  const auto ids = random_ids(12, model.config().vocab_size, 4);
  KeyValueCache cache(model, 1, 12);
  Batch prompt;
  cache.add_to(prompt, 0, std::span(ids).first(11));
  Recorder first(everything);
  cache.run(prompt, first);
  Batch next;
  cache.add_to(next, 0, std::span(ids).last(1));
  EditsPattern edited;
  cache.run(next, edited);
  const auto d = static_cast<std::size_t>(model.config().d_head);
  const float* z = edited.seen.at("blocks.0.attn.hook_z").data<float>();
  EXPECT_EQ(std::memcmp(z, first.seen.at("blocks.0.attn.hook_v").data<float>(), d * sizeof(float)),
            0);
  EXPECT_EQ(z[d], 0.0f);
}

// The cache is complete after a pass, whatever the observer wants.
TEST(KeyValueCache, EarlyStoppingStillFillsAllLayers) {
  const auto model = load_golden("qwen3");
  const auto ids = random_ids(10, model.config().vocab_size, 6);
  for (const auto* wanted : {"nothing", "blocks.0.attn.hook_q", "hook_embed"}) {
    KeyValueCache cache(model, 1, 10);
    Batch prompt;
    cache.add_to(prompt, 0, std::span(ids).first(9));
    Recorder little([&](const std::string& name) { return name == wanted; });
    little.looked_at = {8};
    cache.run(prompt, little);
    Batch next;
    cache.add_to(next, 0, std::span(ids).last(1));
    Recorder recorder(everything);
    cache.run(next, recorder);
    expect_last_rows(whole_pass(model, ids), recorder, wanted);
  }
}

class Throws : public Recorder {
 public:
  Throws() : Recorder([](const std::string& name) { return name == "blocks.1.hook_resid_pre"; }) {}
  void observe(HookPoint, ConstTensorView) override { throw 5; }
};

TEST(KeyValueCache, AnExceptionLeavesTheLengthsUnchanged) {
  const auto model = load_golden("llama_gqa");
  const auto ids = random_ids(10, model.config().vocab_size, 6);
  KeyValueCache cache(model, 1, 10);
  const auto run = [&](std::size_t end, Observer& observer) {
    const auto there = static_cast<std::size_t>(cache.length(0));
    Batch batch;
    cache.add_to(batch, 0, std::span(ids).subspan(there, end - there));
    cache.run(batch, observer);
  };
  Recorder first(everything);
  run(6, first);
  Throws throws;
  EXPECT_THROW(run(8, throws), int);
  EXPECT_EQ(cache.length(0), 6);
  Recorder rest(everything);
  run(10, rest);
  expect_last_rows(whole_pass(model, ids), rest, "");
}

TEST(KeyValueCache, InvalidBatchesThrow) {
  const auto model = load_golden("llama_gqa");
  KeyValueCache cache(model, 2, 8);
  const auto error_message = [&](const Batch& batch) {
    Recorder recorder(everything);
    return bad_input_message([&] { cache.run(batch, recorder); });
  };
  const Ids nine(9, 1);
  Batch too_long;
  cache.add_to(too_long, 1, nine);
  EXPECT_NE(error_message(too_long).find("9 tokens, there is room for 8"), std::string::npos);
  Batch twice;
  cache.add_to(twice, 0, std::span(nine).first(2));
  cache.add_to(twice, 0, std::span(nine).first(2));
  EXPECT_NE(error_message(twice).find("twice"), std::string::npos);
  Batch later;
  cache.add_to(later, 0, std::span(nine).first(2));
  later.sequences[0].past = 3;
  EXPECT_NE(error_message(later).find("position 3"), std::string::npos);
  EXPECT_NE(bad_input_message([&] { cache.length(2); }).find("it has 2"), std::string::npos);
  EXPECT_NE(bad_input_message([&] { cache.shorten(0, 1); }).find("it has 0"), std::string::npos);
  EXPECT_NE(bad_input_message([&] { KeyValueCache(model, 0, 1); }).find("at least one"),
            std::string::npos);
  EXPECT_NE(bad_input_message([&] {
              KeyValueCache(model, 1000, 1'000'000'000'000);
            }).find("take fewer texts"),
            std::string::npos);
}

TEST(KeyValueCache, ChangedRopeFrequenciesThrow) {
  const auto model = load_golden("rope_dynamic_long");
  const auto made_for = model.config().ropes[0].max_positions;
  KeyValueCache cache(model, 1, made_for + 9);
  const auto ids = random_ids(made_for + 9, model.config().vocab_size, 6);
  Recorder recorder([](const std::string&) { return false; });
  Batch batch;
  cache.add_to(batch, 0, std::span(ids).first(static_cast<std::size_t>(made_for)));
  cache.run(batch, recorder);
  EXPECT_FALSE(cache.can_extend(0, 1));
  Batch more;
  cache.add_to(more, 0, std::span(ids).last(1));
  EXPECT_NE(bad_input_message([&] { cache.run(more, recorder); }).find("changes its frequencies"),
            std::string::npos);
}

}  // namespace
}  // namespace qkscope
