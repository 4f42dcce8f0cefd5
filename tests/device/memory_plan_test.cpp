#include "device/memory_plan.h"

#include <gtest/gtest.h>

namespace qkscope {
namespace {

// The shape of an 8B model. What the CPU holds for it: residual, normalized, update (d_model), q
// and z (32 heads), k and v (8 heads), cosines and sines, gate and up of a chunk of rows, and in
// the order in which the kernel reads them the input of the product at work, k and v, and 64 MiB of
// weights.
TEST(MemoryPlan, OnTheCpuWhatIsPackedIsCounted) {
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

}  // namespace
}  // namespace qkscope
