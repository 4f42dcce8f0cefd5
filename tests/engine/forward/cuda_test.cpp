// The CUDA backend against golden data, against the CPU, and against itself. Needs an NVIDIA GPU.
#include <cstring>
#include <random>
#include <set>

#include "base/core/convert.h"
#include "base/core/error.h"
#include "base/io/json.h"
#include "engine/device/memory_plan.h"
#include "engine/ops/linear.h"
#include "golden_case.h"
#include "golden_model.h"
#include "paths.h"
#include "qkscope/forward.h"

namespace qkscope {
namespace {

constexpr Device kGpu{Device::Kind::cuda, 0};

const char* const kCudaFamilies[] = {"llama_gqa",
                                     "llama_bias",
                                     "mistral_window_long",
                                     "ministral3",
                                     "qwen2",
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
                                     "llama4_text",
                                     "qwen3_next",
                                     "qwen3_5_text",
                                     "olmo_hybrid",
                                     "olmo_hybrid_rope",
                                     "lfm2",
                                     "lfm2_bias",
                                     "falcon_h1",
                                     "falcon_h1_norm",
                                     "granitemoehybrid",
                                     "granitemoehybrid_dense",
                                     "nemotron_h",
                                     "nemotron_h_bias",
                                     "nemotron_h_experts",
                                     "kimi_linear",
                                     "kimi_linear_long"};

#define NEEDS_A_GPU() \
  if (cuda_device_count() == 0) GTEST_SKIP() << why_no_cuda()

std::unique_ptr<Backend> on_gpu(const LoadedCheckpoint& model, DType dtype,
                                std::int64_t memory = 0) {
  return make_backend(model, {.device = kGpu, .dtype = dtype, .device_memory = memory});
}

Batch random_batch(const LoadedCheckpoint& model, const std::vector<std::int64_t>& lengths) {
  Batch batch;
  for (const auto length : lengths) {
    std::mt19937 generator(static_cast<unsigned>(length));
    std::vector<std::int32_t> ids(static_cast<std::size_t>(length));
    for (auto& id : ids)
      id = static_cast<std::int32_t>(generator() % static_cast<unsigned>(model.config.vocab_size));
    batch.add(ids);
  }
  return batch;
}

bool no_squares(const std::string& name) {
  return !name.ends_with("hook_pattern") && !name.ends_with("hook_attn_scores");
}

Recorder run(Backend& backend, const Batch& batch, const Recorder::Wanted& wanted = no_squares) {
  Recorder recorder(wanted);
  forward(backend, batch, recorder);
  return recorder;
}

void expect_same_bits(const Recorder& a, const Recorder& b) {
  ASSERT_EQ(a.order, b.order);
  for (const auto& [name, tensor] : a.seen)
    EXPECT_EQ(std::memcmp(tensor.view().bytes(), b.seen.at(name).view().bytes(),
                          tensor.view().size_bytes()),
              0)
        << name;
}

double relative_difference(const Recorder& ours, const Recorder& theirs, std::string_view name) {
  Difference difference;
  const auto& a = ours.seen.at(std::string(name));
  const auto& b = theirs.seen.at(std::string(name));
  for (std::int64_t i = 0; i < a.size(); ++i)
    difference.add(a.data<float>()[i], b.data<float>()[i]);
  return difference.relative();
}

class CudaGolden : public testing::TestWithParam<Case> {};

// Sums of the same float32 products in another order; the project's bound for a GPU.
TEST_P(CudaGolden, Float32AgreesWithTransformers) {
  NEEDS_A_GPU();
  if (!runs_on_cuda(GetParam())) GTEST_SKIP() << "refused on CUDA";
  const auto model = load_case(GetParam());
  const GoldenRun golden(GetParam());
  const auto recorder = golden.run(*on_gpu(model, DType::f32));
  double worst = 0.0;
  golden.compare_with(recorder, [&](const std::string& name, const Difference& difference) {
    EXPECT_LT(difference.maximal, 1e-3) << name;
    worst = std::max(worst, difference.maximal);
  });
  std::printf("float32 %s: maximal difference %.2e\n", GetParam().name().c_str(), worst);
}

INSTANTIATE_TEST_SUITE_P(All, CudaGolden, testing::ValuesIn(golden_cases()),
                         [](const auto& golden) { return golden.param.name(); });

struct Bf16Errors {  // relative norms, summed over tensors
  double ours = 0.0;
  double theirs = 0.0;
};

const Json& transformers_bf16_errors() {
  static const Json errors = load_json(source_path("tests/golden/bf16_errors.json"));
  return errors;
}

std::string folder_name(const Case& golden) {
  return fs::path(golden.folder).filename().string();
}

// Those that have a reference; the demo's trained checkpoints have none.
std::vector<Case> bf16_cases() {
  auto cases = golden_cases();
  std::erase_if(cases, [](const Case& golden) {
    return !transformers_bf16_errors().contains(folder_name(golden));
  });
  return cases;
}

// What the CPU chooses by the router logits that the run shows: the same experts, by weights that
// are float32 in every run.
void expect_choice_of_logits(const LoadedCheckpoint& model, const Recorder& recorder) {
  const std::string logits_name = "hook_router_logits";
  for (const auto& [name, logits] : recorder.seen) {
    if (!name.ends_with(logits_name)) continue;
    const auto prefix = name.substr(0, name.size() - logits_name.size());
    const auto& shown = recorder.seen.at(prefix + "hook_expert_weights");
    Tensor weights(shown.view().shape());
    Tensor indices(shown.view().shape());
    const auto layer = std::stoul(name.substr(std::string("blocks.").size()));
    choose_experts(logits.view(), model.config.experts, model.weights.layers[layer].selection_bias,
                   weights.view(), indices.view());
    const auto& shown_indices = recorder.seen.at(prefix + "hook_expert_indices");
    for (std::int64_t i = 0; i < shown.size(); ++i) {
      EXPECT_EQ(shown_indices.data<float>()[i], indices.data<float>()[i]) << name;
      EXPECT_NEAR(shown.data<float>()[i], weights.data<float>()[i], 1e-6) << name;
    }
  }
}

// tests/golden/bf16_errors.json says how far transformers' own bfloat16 run is from its float32 run
// (tools/make_bf16_errors.py). Both errors are sums of roundings that fall as they fall: in a tiny
// model they differ by chance, by up to a tenth over a case and by more in one tensor where both
// are small. On average ours are smaller (docs/explanation/numerics.md).
Bf16Errors bf16_errors(const Case& golden) {
  const auto& bounds = transformers_bf16_errors()[folder_name(golden)];
  const auto model = load_case(golden);
  const GoldenRun answers(golden);
  const auto recorder = answers.run(*on_gpu(model, DType::bf16));
  expect_choice_of_logits(model, recorder);
  Bf16Errors errors;
  answers.compare_with(recorder, [&](const std::string& name, const Difference& difference) {
    if (!bounds.contains(name)) return;
    const double bound = bounds[name].get<double>();
    EXPECT_LE(difference.relative(), 2.5 * bound + 1e-6) << golden.name() << " " << name;
    errors.ours += difference.relative();
    errors.theirs += bound;
  });
  return errors;
}

class CudaBfloat16 : public testing::TestWithParam<Case> {};

TEST_P(CudaBfloat16, IsAsCloseAsTransformersIs) {
  NEEDS_A_GPU();
  const auto [ours, theirs] = bf16_errors(GetParam());
  EXPECT_LE(ours, 1.25 * theirs);
  std::printf("bfloat16 %s: error %.3e, transformers' own %.3e (sum over tensors)\n",
              GetParam().name().c_str(), ours, theirs);
}

INSTANTIATE_TEST_SUITE_P(All, CudaBfloat16, testing::ValuesIn(bf16_cases()),
                         [](const auto& golden) { return golden.param.name(); });

// Over all cases chance evens out.
TEST(CudaBfloat16Together, IsNoFurtherOffThanTransformersIs) {
  NEEDS_A_GPU();
  Bf16Errors sum;
  for (const auto& golden : bf16_cases()) {
    const auto errors = bf16_errors(golden);
    sum.ours += errors.ours;
    sum.theirs += errors.theirs;
  }
  EXPECT_LE(sum.ours, sum.theirs);
}

// Rows of a mixture of experts run in chunks of at most 32,768 (memory_plan.h).
TEST(CudaExperts, RowsOfEveryChunkAgree) {
  NEEDS_A_GPU();
  constexpr std::int64_t kTexts = 120;
  constexpr std::int64_t kLength = 300;
  for (const auto* family : {"mixtral", "qwen3_moe", "gpt_oss", "glm4_moe", "afmoe", "qwen3_next",
                             "granitemoehybrid", "nemotron_h_experts", "kimi_linear_sparse"}) {
    const auto model = load_golden(family);
    ASSERT_GT(kTexts * kLength, cuda_expert_chunk_rows(model.config));
    const auto backend = on_gpu(model, DType::f32);
    const auto only_logits = [](const std::string& name) { return name == "logits"; };
    const auto alone = run(*backend, random_batch(model, {kLength}), only_logits);
    const auto all =
        run(*backend, random_batch(model, std::vector<std::int64_t>(kTexts, kLength)), only_logits);
    const auto expected = alone.seen.at("logits").view();
    for (std::int64_t text = 0; text < kTexts; ++text) {
      const auto found = all.seen.at("logits").view().rows(text * kLength, (text + 1) * kLength);
      Difference difference;
      for (std::int64_t i = 0; i < expected.size(); ++i)
        difference.add(found.data<float>()[i], expected.data<float>()[i]);
      EXPECT_LT(difference.relative(), 1e-5) << family << ", text " << text;
    }
  }
}

class CudaProperty : public testing::TestWithParam<const char*> {};

TEST_P(CudaProperty, TheSameRunGivesTheSameBits) {
  NEEDS_A_GPU();
  const auto model = load_golden(GetParam());
  const auto batch = random_batch(model, {300, 1, 37});
  for (const auto dtype : {DType::bf16, DType::f16, DType::f32})
    expect_same_bits(run(*on_gpu(model, dtype), batch), run(*on_gpu(model, dtype), batch));
}

TEST_P(CudaProperty, PackedSequencesAgreeWithEachAlone) {
  NEEDS_A_GPU();
  const auto model = load_golden(GetParam());
  const auto backend = on_gpu(model, DType::f32);
  const std::vector<std::int64_t> lengths = {37, 1, 300, 16, 129, 2};
  const auto packed = run(*backend, random_batch(model, lengths));
  std::int64_t begin = 0;
  for (const auto length : lengths) {
    const auto alone = run(*backend, random_batch(model, {length}));
    const auto rows = packed.seen.at("logits").view().rows(begin, begin + length);
    Difference difference;
    for (std::int64_t i = 0; i < rows.size(); ++i)
      difference.add(rows.data<float>()[i], alone.seen.at("logits").data<float>()[i]);
    EXPECT_LT(difference.relative(), 1e-5);  // float32 sums, perhaps in another order
    begin += length;
  }
}

TEST_P(CudaProperty, ShowingChangesNoBitOfTheLogits) {
  NEEDS_A_GPU();
  const auto model = load_golden(GetParam());
  const auto batch = random_batch(model, {150});
  const auto only_logits = [](const std::string& name) { return name == "logits"; };
  for (const auto dtype : {DType::bf16, DType::f16, DType::f32}) {
    const auto backend = on_gpu(model, dtype);
    const auto watched = run(*backend, batch, [](const std::string&) { return true; });
    const auto alone = run(*backend, batch, only_logits);
    const auto bits = [](const Recorder& recorder) { return recorder.seen.at("logits").view(); };
    EXPECT_EQ(std::memcmp(bits(watched).bytes(), bits(alone).bytes(), bits(alone).size_bytes()), 0)
        << dtype_name(dtype);
  }
}

TEST_P(CudaProperty, ChosenRowsAgreeWithAll) {
  NEEDS_A_GPU();
  const auto model = load_golden(GetParam());
  const auto backend = on_gpu(model, DType::f32);
  const auto batch = random_batch(model, {300, 1, 37});
  const auto whole = run(*backend, batch);
  for (const auto point : hook_points(model.config)) {
    const auto name = hook_name(point);
    if (!no_squares(name) || point.stage == Stage::mixer_state) continue;
    Recorder some([&](const std::string& other) { return other == name; });
    some.looked_at = {0, 3, 150, 255, 256, 299, 300, 301, 337};
    forward(*backend, batch, some);
    const auto& part = some.seen.at(name);
    ASSERT_EQ(part.dim(0), static_cast<std::int64_t>(some.looked_at.size())) << name;
    const auto difference = compare(whole.seen.at(name), part, some.looked_at, true);
    EXPECT_LT(difference.relative(), 1e-5) << name;  // float32 sums, perhaps in another order
  }
}

TEST_P(CudaProperty, StreamedWeightsGiveTheSameBits) {
  NEEDS_A_GPU();
  const auto model = load_golden(GetParam());
  const auto batch = random_batch(model, {64, 9});
  const auto resident = run(*on_gpu(model, DType::bf16), batch);
  const auto streaming =
      make_backend(model, {.device = kGpu, .dtype = DType::bf16, .stream_weights = true});
  expect_same_bits(run(*streaming, batch), resident);
  expect_same_bits(run(*streaming, batch), resident);  // and once more, from the first layer again
}

TEST_P(CudaProperty, ScoresAreThoseOfTheCpu) {
  NEEDS_A_GPU();
  const auto model = load_golden(GetParam());
  const auto batch = random_batch(model, {70, 33});
  const auto wanted = [](const std::string& name) { return !no_squares(name); };
  const auto gpu = run(*on_gpu(model, DType::f32), batch, wanted);
  const auto cpu = run(*make_backend(model), batch, wanted);
  ASSERT_EQ(gpu.order, cpu.order);
  for (const auto& name : gpu.order) EXPECT_LT(relative_difference(gpu, cpu, name), 1e-4) << name;
}

// Writes back what it read, at every point.
class Untouched : public Recorder {
 public:
  Untouched() : Recorder([](const std::string&) { return true; }) {}
  bool edits(HookPoint point) const override {
    return point.stage != Stage::logits && point.stage != Stage::mixer_state;
  }
  void edit(HookPoint point, TensorView activation) override { observe(point, activation); }
};

// The same with copies that stay on the GPU; one point can be zeroed there.
class UntouchedOnGpu : public Untouched {
 public:
  bool keeps_on_device() const override { return true; }
  bool keep(HookPoint point, const ActivationCopy& activation) override {
    Tensor copy(activation.view.shape());
    copy_values(copy, activation.view);
    observe(point, copy);
    if (zeroed.contains(hook_name(point))) {
      std::memset(copy.view().bytes(), 0, copy.view().size_bytes());
      copy_values(activation.view, copy);
    }
    return edits(point);
  }

  std::set<std::string> zeroed;
};

void expect_seen(const Recorder& seen, const Recorder& plain) {
  for (const auto& [name, tensor] : plain.seen)
    EXPECT_EQ(std::memcmp(tensor.view().bytes(), seen.seen.at(name).view().bytes(),
                          tensor.view().size_bytes()),
              0)
        << name;
}

TEST_P(CudaProperty, WritingBackWhatWasReadChangesNoBit) {
  NEEDS_A_GPU();
  const auto model = load_golden(GetParam());
  const auto backend = on_gpu(model, DType::bf16);
  const auto batch = random_batch(model, {65});
  const auto plain = run(*backend, batch);
  Untouched untouched;
  forward(*backend, batch, untouched);
  expect_seen(untouched, plain);
  UntouchedOnGpu kept;
  forward(*backend, batch, kept);
  expect_seen(kept, plain);
}

TEST_P(CudaProperty, UpdatesThatAreZeroedOnTheGpuLeaveTheResidual) {
  NEEDS_A_GPU();
  const auto model = load_golden(GetParam());
  const auto backend = on_gpu(model, DType::bf16);
  UntouchedOnGpu zeroing;
  zeroing.zeroed = {"blocks.0.hook_attn_out", "blocks.0.mixer.hook_out", "blocks.0.hook_mlp_out",
                    "blocks.0.hook_per_layer_out"};
  forward(*backend, random_batch(model, {65}), zeroing);
  const auto& before = zeroing.seen.at("blocks.0.hook_resid_pre");
  const auto& after = zeroing.seen.at("blocks.0.hook_resid_post");
  const float scalar = model.weights.layers.front().scalar;  // 1 in most families
  for (std::int64_t i = 0; i < before.size(); ++i)
    ASSERT_EQ(after.data<float>()[i], to_float(to_bf16(scalar * before.data<float>()[i]))) << i;
}

INSTANTIATE_TEST_SUITE_P(Families, CudaProperty, testing::ValuesIn(kCudaFamilies),
                         [](const auto& family) { return std::string(family.param); });

// States after chosen rows, some of them in one sequence.
TEST(CudaMixer, StatesOfChosenRowsAreThoseOfTheCpu) {
  NEEDS_A_GPU();
  for (const auto* family : {"qwen3_next", "qwen3_5_text", "olmo_hybrid", "lfm2", "falcon_h1",
                             "granitemoehybrid", "nemotron_h", "kimi_linear"}) {
    const auto model = load_golden(family);
    const auto batch = random_batch(model, {150, 1, 37});
    const auto states = [&](Backend& backend) {
      Recorder recorder([](const std::string& name) { return name.ends_with("hook_state"); });
      recorder.looked_at = {0, 63, 64, 149, 150, 187};
      forward(backend, batch, recorder);
      return recorder;
    };
    const auto gpu = states(*on_gpu(model, DType::f32));
    const auto cpu = states(*make_backend(model));
    ASSERT_EQ(gpu.order, cpu.order);
    for (const auto& name : gpu.order) EXPECT_LT(relative_difference(gpu, cpu, name), 1e-4) << name;
  }
}

TEST(Cuda, ABatchThatDoesNotFitIsRefusedWithNumbers) {
  NEEDS_A_GPU();
  const auto model = load_golden("llama_gqa");
  const auto backend = on_gpu(model, DType::bf16, std::int64_t{512} << 20);
  Batch batch;
  batch.add(std::vector<std::int32_t>(2'000'000, 1));
  Recorder recorder([](const std::string& name) { return name == "logits"; });
  try {
    forward(*backend, batch, recorder);
    FAIL() << "a batch that cannot fit was run";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
    EXPECT_NE(std::string(error.what()).find("tokens fit"), std::string::npos) << error.what();
  }
  // The backend is as good as before.
  EXPECT_EQ(run(*backend, random_batch(model, {5}),
                [](const std::string& name) { return name == "logits"; })
                .seen.size(),
            1u);
}

}  // namespace
}  // namespace qkscope
