// A cache of keys and values on a GPU. Needs an NVIDIA GPU.
#include <cmath>
#include <filesystem>
#include <random>

#include <gtest/gtest.h>

#include "error_message.h"
#include "forward/recorder.h"
#include "paths.h"
#include "qkscope/generate.h"

namespace qkscope {
namespace {

using Ids = std::vector<std::int32_t>;

#define NEEDS_A_GPU() \
  if (cuda_device_count() == 0) GTEST_SKIP() << why_no_cuda()

std::vector<std::string> golden_models() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(source_path("tests/golden")))
    if (std::filesystem::exists(entry.path() / "golden.safetensors"))
      names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

Model load(const std::string& name, const std::string& dtype) {
  return Model::load(source_path("tests/golden/") + name, {.device = "cuda", .dtype = dtype});
}

Ids random_ids(std::int64_t count, std::int64_t vocabulary) {
  std::mt19937 generator(11);
  Ids ids(static_cast<std::size_t>(count));
  for (auto& id : ids)
    id = static_cast<std::int32_t>(generator() % static_cast<unsigned>(vocabulary));
  return ids;
}

bool logits_and_patterns(const std::string& name) {
  return name == "logits" || name.ends_with("hook_pattern") || name.ends_with("hook_z");
}

// The largest difference between `part` and the last rows of `whole`.
double difference(const Recorder& whole, const Recorder& part) {
  double worst = 0.0;
  for (const auto& [name, tensor] : part.seen) {
    const auto& all = whole.seen.at(name);
    const int axis = name.ends_with("hook_pattern") ? 1 : 0;
    const auto heads = axis == 1 ? tensor.dim(0) : 1;
    const auto rows = tensor.dim(axis);
    const auto width = tensor.size() / (heads * rows);
    EXPECT_EQ(width, all.size() / (heads * all.dim(axis))) << name;
    for (std::int64_t head = 0; head < heads; ++head)
      for (std::int64_t i = 0; i < rows * width; ++i)
        worst = std::max<double>(
            worst,
            std::abs(tensor.data<float>()[head * rows * width + i] -
                     all.data<float>()[(head * all.dim(axis) + all.dim(axis) - rows) * width + i]));
  }
  return worst;
}

class CudaCached : public testing::TestWithParam<std::string> {};

// Float32 sums in another order: products and attention choose their kernels by the number of rows.
TEST_P(CudaCached, RowsAgreeWithTheWholePass) {
  NEEDS_A_GPU();
  const auto model = load(GetParam(), "float32");
  const auto ids = random_ids(50, model.config().vocab_size);
  KeyValueCache cache(model, 1, 50);
  std::size_t end = 0;
  double worst = 0.0;
  for (const std::size_t piece : {20, 1, 1, 27, 1}) {
    end += piece;
    if (!cache.can_go_on(0, static_cast<std::int64_t>(piece))) cache.shorten(0, 0);
    const auto there = static_cast<std::size_t>(cache.length(0));
    Batch batch;
    cache.add_to(batch, 0, std::span(ids).subspan(there, end - there));
    Recorder part(logits_and_patterns);
    cache.run(batch, part);
    Batch text;
    text.add(std::span(ids).first(end));
    Recorder whole(logits_and_patterns);
    model.run(text, whole);
    worst = std::max(worst, difference(whole, part));
  }
  EXPECT_LT(worst, 1e-4);
  std::printf("%s: maximal difference %.2e\n", GetParam().c_str(), worst);
}

INSTANTIATE_TEST_SUITE_P(Golden, CudaCached, testing::ValuesIn(golden_models()),
                         [](const auto& model) { return model.param; });

TEST(CudaCache, TextsOfDifferentLengthsGoOnTogether) {
  NEEDS_A_GPU();
  for (const auto* dtype : {"float32", "bfloat16"}) {
    const auto model = load("smollm3_windows", dtype);
    const std::vector<Ids> prompts = {random_ids(30, 40), {4}, random_ids(7, 40)};
    GenerateOptions options;
    options.max_new_tokens = 20;
    options.stops_at_end = false;
    const auto together = generate(model, prompts, options);
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      ASSERT_EQ(together[i].ids.size(), 20u);
      if (std::string(dtype) == "float32") {
        EXPECT_EQ(generate(model, std::vector<Ids>{prompts[i]}, options)[0].ids, together[i].ids);
      }
    }
  }
}

// The greedy text of the CPU, in float32.
TEST(CudaCache, GeneratesWhatTheCpuDoes) {
  NEEDS_A_GPU();
  for (const auto* name : {"llama_gqa", "gemma2", "gpt2", "rope_longrope_long", "mllama_text"}) {
    const auto prompt = random_ids(9, 40);
    GenerateOptions options;
    options.max_new_tokens = 25;
    options.stops_at_end = false;
    const auto cpu = Model::load(source_path("tests/golden/") + name, {.device = "cpu"});
    EXPECT_EQ(generate(load(name, "float32"), std::vector<Ids>{prompt}, options)[0].ids,
              generate(cpu, std::vector<Ids>{prompt}, options)[0].ids)
        << name;
  }
}

// Zeroes all of the pattern but the first key.
class EditsPattern : public Recorder {
 public:
  EditsPattern() : Recorder([](const std::string& n) { return n.starts_with("blocks.0.attn"); }) {}
  bool edits(HookPoint point) const override { return point.stage == Stage::pattern; }
  void edit(HookPoint, TensorView pattern) override {
    for (std::int64_t i = 0; i < pattern.size(); ++i) pattern.data<float>()[i] = 0.0f;
    pattern.data<float>()[0] = 1.0f;
  }
};

TEST(CudaCache, AnEditedPatternTakesTheCachedValues) {
  NEEDS_A_GPU();
  const auto model = load("llama_gqa", "float32");
  const auto ids = random_ids(12, model.config().vocab_size);
  KeyValueCache cache(model, 1, 12);
  Batch prompt;
  cache.add_to(prompt, 0, std::span(ids).first(11));
  Recorder first([](const std::string& name) { return name == "blocks.0.attn.hook_v"; });
  cache.run(prompt, first);
  Batch next;
  cache.add_to(next, 0, std::span(ids).last(1));
  EditsPattern edited;
  cache.run(next, edited);
  for (std::int64_t i = 0; i < model.config().d_head; ++i)
    EXPECT_EQ(edited.seen.at("blocks.0.attn.hook_z").data<float>()[i],
              first.seen.at("blocks.0.attn.hook_v").data<float>()[i]);
}

TEST(CudaCache, OneThatDoesNotFitIsRefused) {
  NEEDS_A_GPU();
  const auto model = load("llama_gqa", "float32");
  EXPECT_NE(bad_input_message([&] { KeyValueCache(model, 100, 20'000'000); }).find("take fewer"),
            std::string::npos);
}

TEST(CudaStart, FromResidualsShowsTheSame) {
  NEEDS_A_GPU();
  const auto model = load("gpt_neox", "float32");
  Batch batch;
  batch.add(random_ids(20, model.config().vocab_size));
  Recorder whole([](const std::string& n) { return n == "logits" || n.ends_with("resid_pre"); });
  model.run(batch, whole);
  Recorder rest([](const std::string& name) { return name == "logits"; });
  model.run(batch, rest,
            {.residual = whole.seen.at("blocks.1.hook_resid_pre"), .start_at_layer = 1});
  for (std::int64_t i = 0; i < rest.seen.at("logits").size(); ++i)
    EXPECT_EQ(rest.seen.at("logits").data<float>()[i], whole.seen.at("logits").data<float>()[i]);
}

}  // namespace
}  // namespace qkscope
