#include "engine/device/cuda/attention/attention_choice.h"

namespace qkscope::cuda {
namespace {

constexpr int kHopper = 90;        // sm_90a code runs on no other architecture
constexpr int kFirstWithMma = 80;  // oldest architecture of cuDNN's fused kernels

// Cases in which FlashInfer's kernel measured fastest.
bool is_for_flash_infer(const AttentionCase& attention) {
  if (attention.capability != kHopper) return false;
  if (attention.softcap) return attention.d_head == 128 || attention.d_head == 256;
  return attention.d_head == 64 || attention.d_head == 96 || attention.d_head == 128 ||
         attention.d_head == 256;
}

// cuDNN's kernel supports neither soft caps nor a scale per layer, and returns no row sums, which
// attention sinks need.
bool is_for_cudnn(const AttentionCase& attention) {
  return attention.capability >= kFirstWithMma && !attention.softcap && !attention.sinks &&
         !attention.own_scale;
}

}  // namespace

AttentionKernel choose_attention(const AttentionCase& attention, const AttentionLibraries& has) {
  const bool is_16_bit = attention.dtype == DType::bf16 || attention.dtype == DType::f16;
  if (!is_16_bit || attention.chosen_rows) return AttentionKernel::own;
  if (has.flash_infer && is_for_flash_infer(attention)) return AttentionKernel::flash_infer;
  if (has.cudnn && is_for_cudnn(attention)) return AttentionKernel::cudnn;
  return AttentionKernel::own;
}

}  // namespace qkscope::cuda
