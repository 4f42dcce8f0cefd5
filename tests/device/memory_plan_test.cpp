#include "device/memory_plan.h"

#include <gtest/gtest.h>

namespace qkscope {
namespace {

// The shape of an 8B model. What the CPU holds for it: residual, normalized, update (d_model), q
// and z (32 heads), k and v (8 heads), cosines and sines, gate and up of a chunk of rows, and the
// input of the product at work in the order in which the kernel reads it.
TEST(MemoryPlan, OnTheCpuThePackedInputIsCounted) {
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
  const std::int64_t packed = 4096;
  EXPECT_EQ(activation_bytes(model, kRows), 4 * (kRows * (buffers + packed) + 2 * 512 * 14336));
}

// The shape of a 3B model at its longest: the row sums alone on the CPU, less than 0.6 GiB of
// everything on a GPU.
TEST(MemoryPlan, StatisticsAreCounted) {
  ModelConfig model;
  model.n_heads = 16;
  model.n_kv_heads = 4;
  model.d_head = 128;
  constexpr std::int64_t kRows = 131072;
  const StatisticsMemory all{.attention = true, .all_keys = true};
  BackendOptions gpu;
  gpu.device.kind = Device::Kind::cuda;
  EXPECT_EQ(statistics_bytes(model, kRows, {}), 0);
  EXPECT_EQ(statistics_bytes(model, kRows, all), kRows * 16 * 8);
  EXPECT_GT(statistics_bytes(model, kRows, all, gpu), statistics_bytes(model, kRows, {}, gpu));
  EXPECT_LT(statistics_bytes(model, kRows, all, gpu), std::int64_t{600} << 20);
}

}  // namespace
}  // namespace qkscope
