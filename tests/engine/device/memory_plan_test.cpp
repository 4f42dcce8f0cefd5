#include "engine/device/memory_plan.h"

#include <gtest/gtest.h>

namespace qkscope {
namespace {

// An 8B model on the CPU: residual, normalized, update (d_model), q and z (32 heads), k and v (8
// heads), cosines and sines, gate and up of a chunk, and packed operands: the input of the current
// product, k and v, and 64 MiB of weights.
TEST(MemoryPlan, CpuActivationsIncludePackedOperands) {
  ModelConfig model;
  model.d_model = 4096;
  model.n_heads = 32;
  model.n_kv_heads = 8;
  model.d_head = 128;
  model.d_mlp = 14336;
  model.ropes = {RopeConfig{}};
  model.ropes[0].dim = 128;
  constexpr std::int64_t kRows = 8192;
  const std::int64_t buffers = 3 * 4096 + 2 * 4096 + 2 * 1024 + 128;
  const std::int64_t packed = 4096 + 2 * 1024;
  EXPECT_EQ(activation_bytes(model, kRows),
            4 * (kRows * (buffers + packed) + 2 * 512 * 14336) + (64 << 20));
}

// Parallel residuals, ungated MLPs and, for streamed weights, learned positions change the sizes.
TEST(MemoryPlan, ParallelResidualsAndLearnedPositionsAreCounted) {
  ModelConfig model;
  model.d_model = 64;
  model.n_heads = model.n_kv_heads = 4;
  model.d_head = 16;
  model.d_mlp = 256;
  model.vocab_size = model.embedding_rows = 100;
  model.n_layers = 3;
  model.layers.resize(3);
  const auto plain = activation_bytes(model, 100);
  model.parallel_residual = true;
  EXPECT_EQ(activation_bytes(model, 100), plain + 4 * 100 * 64);
  model.parallel_residual = false;
  model.names.gate = "";
  EXPECT_EQ(activation_bytes(model, 100), plain - 4 * 100 * 256 - 4 * 64 * 256);  // weights packed

  const auto streamed = streamed_weight_bytes(model, DType::f32);
  model.max_positions = 1000;
  model.names.positions = "wpe";
  EXPECT_EQ(streamed_weight_bytes(model, DType::f32), streamed + 4 * 1000 * 64);
}

// q, k and v, the gate, the output, rates and decays of a batch; states in the cache.
TEST(MemoryPlan, RecurrentLayersAreCounted) {
  ModelConfig model;
  model.d_model = 64;
  model.n_heads = model.n_kv_heads = 4;
  model.d_head = 16;
  model.d_mlp = 256;
  model.n_layers = 4;
  model.layers.resize(4);
  const BackendOptions gpu{.device = {Device::Kind::cuda, 0}, .dtype = DType::f32};
  const auto plain = activation_bytes(model, 100);
  const auto plain_on_gpu = activation_bytes(model, 100, gpu);
  const auto token = kv_bytes_per_token(model, DType::f32);
  EXPECT_EQ(recurrent_state_bytes(model), 0);
  model.mixer = {.kind = Mixer::gated_delta,
                 .key_heads = 2,
                 .value_heads = 4,
                 .d_key = 8,
                 .d_value = 10,
                 .taps = 3};
  for (const std::size_t layer : {0, 1, 2}) model.layers[layer].mixer = Mixer::gated_delta;
  EXPECT_EQ(activation_bytes(model, 100), plain + 4 * 100 * (72 + 2 * 40 + 2 * 4));
  EXPECT_EQ(activation_bytes(model, 100, gpu),
            plain_on_gpu + 4 * 100 * (2 * 72 + 3 * 40 + 2 * 4 + 8) + 8 * 100 * 4);
  EXPECT_EQ(kv_bytes_per_token(model, DType::f32), token / 4);
  EXPECT_EQ(recurrent_state_bytes(model), 3 * 4 * (2 * 72 + 4 * (8 * 10 + 64 * 19)));
}

// Chunks of 64 tokens have four matrices in a gated delta net and two in Mamba 2, which has them in
// bfloat16 only. A short convolution has projections and outputs alone. Kimi Delta Attention has
// one decay per key channel, gates of its own, and a buffer for their latents.
TEST(MemoryPlan, MixersOfEveryKindAreCounted) {
  ModelConfig model;
  model.d_model = 64;
  model.n_heads = model.n_kv_heads = 4;
  model.d_head = 16;
  model.d_mlp = 256;
  model.n_layers = 2;
  model.layers.resize(2);
  const auto mixer_bytes = [&](const MixerConfig& mixer, DType dtype) {
    const BackendOptions gpu{.device = {Device::Kind::cuda, 0}, .dtype = dtype};
    model.mixer = {};
    const auto plain = activation_bytes(model, 128, gpu);
    model.mixer = mixer;
    return activation_bytes(model, 128, gpu) - plain;
  };
  MixerConfig mixer{.key_heads = 1, .value_heads = 2, .d_key = 128, .d_value = 64};
  const std::int64_t rows = 128 * (2 * (2 * 384 + 3 * 128 + 2 * 2 + 8) + 8 * 2);
  const std::int64_t matrix = 2 * 64 * 64;
  mixer.kind = Mixer::gated_delta;
  EXPECT_EQ(mixer_bytes(mixer, DType::f16), rows + 4 * 2 * (4 * matrix + 2 * 4 * 64));
  mixer.kind = Mixer::mamba2;
  EXPECT_EQ(mixer_bytes(mixer, DType::f16), rows);
  EXPECT_EQ(mixer_bytes(mixer, DType::bf16), rows + 4 * 2 * (2 * matrix + 2 * 4 * 64));
  const MixerConfig convolution{
      .kind = Mixer::short_convolution, .value_heads = 1, .d_value = 64, .taps = 3};
  EXPECT_EQ(mixer_bytes(convolution, DType::bf16), 128 * (2 * (5 * 64 + 2 + 8) + 8));
  const MixerConfig kimi{
      .kind = Mixer::kimi_delta, .key_heads = 2, .value_heads = 2, .d_key = 128, .d_value = 64};
  EXPECT_EQ(mixer_bytes(kimi, DType::bf16),
            128 * (2 * (2 * 640 + 3 * 128 + 2 + 256 + 128 + 8) + 4 * (2 + 256)));
  EXPECT_EQ(cuda_mixer_state_bytes(mixer), 2 * 4 * (3 * 384 + 128 * 128));
  EXPECT_EQ(cuda_mixer_state_bytes(convolution), 2 * 4 * 2 * 64);
}

// Latents of keys and queries and the part of the keys that all heads share, also without RoPE.
TEST(MemoryPlan, LatentsAreCountedWithoutRope) {
  ModelConfig model;
  model.d_model = 64;
  model.n_heads = model.n_kv_heads = 4;
  model.d_head = 16;
  model.d_mlp = 256;
  model.n_layers = 2;
  model.layers.resize(2);
  const BackendOptions gpu{.device = {Device::Kind::cuda, 0}, .dtype = DType::bf16};
  const auto plain = activation_bytes(model, 100, gpu);
  model.latent = {.kv_rank = 12, .q_rank = 8, .d_value = 16, .d_shared = 6};
  EXPECT_EQ(activation_bytes(model, 100, gpu), plain + 2 * 100 * (12 + 8 + 6));
}

// Gemma 4 on a GPU: q, k and v, z and the MLP of the widest layers, keys that later layers use, and
// per-layer inputs, whose embedding is never streamed.
TEST(MemoryPlan, LayersOfDifferentWidthsAreCounted) {
  ModelConfig model;
  model.d_model = 64;
  model.n_heads = 4;
  model.n_kv_heads = 2;
  model.d_head = 16;
  model.d_mlp = 256;
  model.vocab_size = model.embedding_rows = 100;
  model.n_layers = 4;
  model.layers.resize(4);
  const BackendOptions gpu{.device = {Device::Kind::cuda, 0}, .dtype = DType::f32};
  const auto plain = activation_bytes(model, 100, gpu);
  model.layers[1].d_head = 32;  // 4 * 32 + 2 * 32 instead of 4 * 16 + 4 * 16 elements of q, k and v
  model.layers[1].n_kv_heads = 1;
  const auto wide = plain + 4 * 100 * (128 - 64 + 192 - 128);
  EXPECT_EQ(activation_bytes(model, 100, gpu), wide);
  model.layers[3].kv_layer = 1;  // one of the two layers that use the keys of layer 1
  model.layers[3].d_head = 32;
  model.layers[3].n_kv_heads = 1;
  model.layers[2] = model.layers[3];
  EXPECT_EQ(activation_bytes(model, 100, gpu), wide + 4 * 100 * 64);
  EXPECT_EQ(kv_bytes_per_token(model, DType::f32), 4 * (64 + 64));
  model.layers[3].d_mlp = 512;
  const auto shared = wide + 4 * 100 * (64 + 3 * 256);
  EXPECT_EQ(activation_bytes(model, 100, gpu), shared);
  const auto streamed = streamed_weight_bytes(model, DType::f32);
  model.per_layer = {.width = 8, .vocab_size = 50};
  EXPECT_EQ(activation_bytes(model, 100, gpu), shared + 4 * 100 * (4 + 2) * 8);
  // Embedding and projection for all layers; gate, output and norm of two layers.
  EXPECT_EQ(streamed_weight_bytes(model, DType::f32),
            streamed + 4 * (4 * 8 * (50 + 64) + 2 * (2 * 8 * 64 + 64)));
}

// Router outputs, gate and up of the chosen experts, and rows of one expert before and after its
// products; streaming is planned for the largest layer.
TEST(MemoryPlan, ExpertBuffersAreCounted) {
  ModelConfig model;
  model.d_model = 64;
  model.n_heads = model.n_kv_heads = 4;
  model.d_head = 16;
  model.d_mlp = 256;
  model.vocab_size = model.embedding_rows = 100;
  model.n_layers = 3;
  model.layers.resize(3);
  BackendOptions gpu;
  gpu.device.kind = Device::Kind::cuda;
  const auto on_cpu = activation_bytes(model, 100);
  const auto on_gpu = activation_bytes(model, 100, gpu);
  const auto dense = streamed_weight_bytes(model, DType::f32);
  model.experts = {.count = 8, .per_token = 2, .d_mlp = 96};
  model.layers[1].experts = true;
  model.names.experts = {{.router = "gate", .gate_up = "experts.gate_up", .down = "experts.down"}};
  EXPECT_EQ(activation_bytes(model, 100),
            on_cpu + 4 * (100 * (8 + 4) + 2 * 200 * 96 + 200 * (2 * 64 + 3 * 96)));
  EXPECT_GE(activation_bytes(model, 100, gpu), on_gpu + 2 * (200 + 64) * (64 + 3 * 96));
  const std::int64_t experts = 8 * 64 + 8 * 3 * 64 * 96;
  EXPECT_EQ(streamed_weight_bytes(model, DType::f32), dense + 2 * 4 * (experts - 3 * 64 * 256));
}

// A 3B model at its longest: row sums only on the CPU, less than 0.6 GiB in total on a GPU.
TEST(MemoryPlan, StatisticsBuffersAreCounted) {
  ModelConfig model;
  model.n_heads = 16;
  model.n_kv_heads = 4;
  model.d_head = 128;
  constexpr std::int64_t kRows = 131072;
  const EnabledStatistics all{.attention = true, .all_keys = true};
  BackendOptions gpu;
  gpu.device.kind = Device::Kind::cuda;
  EXPECT_EQ(statistics_bytes(model, kRows, {}), 0);
  EXPECT_EQ(statistics_bytes(model, kRows, all), kRows * 16 * 8);
  EXPECT_GT(statistics_bytes(model, kRows, all, gpu), statistics_bytes(model, kRows, {}, gpu));
  EXPECT_LT(statistics_bytes(model, kRows, all, gpu), std::int64_t{400} << 20);
}

}  // namespace
}  // namespace qkscope
