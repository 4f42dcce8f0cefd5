#include "engine/device/cuda/attention/attention_choice.h"

#include <gtest/gtest.h>

namespace qkscope::cuda {
namespace {

constexpr AttentionLibraries kAll;
constexpr int kGpus[] = {75, 80, 86, 89, 90, 100, 103, 120};

AttentionKernel chosen(int capability, std::int64_t d_head, DType dtype = DType::bf16) {
  return choose_attention({.capability = capability, .dtype = dtype, .d_head = d_head}, kAll);
}

TEST(AttentionChoice, FlashInferServesHopperAlone) {
  for (const int gpu : kGpus)
    for (const std::int64_t d_head : {64, 96, 128, 256})
      for (const auto dtype : {DType::bf16, DType::f16})
        EXPECT_EQ(chosen(gpu, d_head, dtype) == AttentionKernel::flash_infer, gpu == 90)
            << gpu << ", heads of " << d_head;
}

TEST(AttentionChoice, HeadsItWasNotMeasuredForTakeCudnn) {
  for (const std::int64_t d_head : {32, 80, 112, 192})
    EXPECT_EQ(chosen(90, d_head), AttentionKernel::cudnn) << d_head;
}

TEST(AttentionChoice, OtherGpusTakeCudnnFromAmpereOn) {
  for (const int gpu : kGpus) {
    if (gpu == 90) continue;
    EXPECT_EQ(chosen(gpu, 128), gpu >= 80 ? AttentionKernel::cudnn : AttentionKernel::own) << gpu;
  }
}

TEST(AttentionChoice, WhatTheLibrariesDoNotKnowIsOurs) {
  for (const int gpu : kGpus) {
    EXPECT_EQ(chosen(gpu, 128, DType::f32), AttentionKernel::own) << gpu;
    EXPECT_EQ(choose_attention({.capability = gpu, .d_head = 128, .chosen_rows = true}, kAll),
              AttentionKernel::own)
        << gpu;
  }
}

TEST(AttentionChoice, CapsSinksAndScalesOfALayerAreFlashInfersOrOurs) {
  for (const int gpu : kGpus) {
    const auto kernel = gpu == 90 ? AttentionKernel::flash_infer : AttentionKernel::own;
    for (const std::int64_t d_head : {128, 256}) {
      const AttentionCase plain{.capability = gpu, .d_head = d_head};
      auto changed = plain;
      changed.softcap = true;
      EXPECT_EQ(choose_attention(changed, kAll), kernel) << gpu;
      changed = plain;
      changed.sinks = true;
      EXPECT_EQ(choose_attention(changed, kAll), kernel) << gpu;
      changed = plain;
      changed.own_scale = true;
      EXPECT_EQ(choose_attention(changed, kAll), kernel) << gpu;
    }
    EXPECT_EQ(choose_attention({.capability = gpu, .d_head = 64, .softcap = true}, kAll),
              AttentionKernel::own)
        << gpu;
  }
}

TEST(AttentionChoice, ABuildWithoutALibraryTakesTheNext) {
  const AttentionCase hopper{.capability = 90, .d_head = 128};
  EXPECT_EQ(choose_attention(hopper, {.flash_infer = false}), AttentionKernel::cudnn);
  EXPECT_EQ(choose_attention(hopper, {.flash_infer = false, .cudnn = false}), AttentionKernel::own);
}

}  // namespace
}  // namespace qkscope::cuda
