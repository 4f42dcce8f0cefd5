#include "device/cuda/attention_choice.h"

namespace qkscope::cuda {
namespace {

constexpr int kHopper = 90;        // its code (sm_90a) runs on no other
constexpr int kFirstWithMma = 80;  // of cuDNN's fused kernels

}  // namespace

AttentionKernel choose_attention(const AttentionCase& attention, const AttentionLibraries& has) {
  const bool is_16_bit = attention.dtype == DType::bf16 || attention.dtype == DType::f16;
  if (!is_16_bit || !attention.plain || attention.chosen_rows) return AttentionKernel::own;
  const bool is_measured = attention.d_head == 128 || attention.d_head == 256;
  if (has.flash_infer && attention.capability == kHopper && is_measured)
    return AttentionKernel::flash_infer;
  if (has.cudnn && attention.capability >= kFirstWithMma) return AttentionKernel::cudnn;
  return AttentionKernel::own;
}

}  // namespace qkscope::cuda
