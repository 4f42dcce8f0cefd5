#include "engine/device/cuda/attention/attention.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "base/core/error.h"

namespace qkscope::cuda {
namespace {

constexpr int kHopper = 90;        // sm_90a code runs on no other architecture
constexpr int kFirstWithMma = 80;  // oldest architecture of cuDNN's fused kernels

// Cases in which FlashInfer's kernel measured fastest.
bool flash_infer_is_fastest(const AttentionCase& attention) {
  if (attention.capability != kHopper) return false;
  if (attention.softcap) return attention.d_head == 128 || attention.d_head == 256;
  return attention.d_head == 64 || attention.d_head == 96 || attention.d_head == 128 ||
         attention.d_head == 256;
}

// cuDNN's kernel supports neither soft caps nor a scale per layer, and returns no row sums, which
// attention sinks need.
bool cudnn_supports(const AttentionCase& attention) {
  return attention.capability >= kFirstWithMma && !attention.softcap && !attention.sinks &&
         !attention.own_scale;
}

}  // namespace

AttentionKernel choose_attention_kernel(const AttentionCase& attention,
                                        const AttentionLibraries& has) {
  const bool is_16_bit = attention.dtype == DType::bf16 || attention.dtype == DType::f16;
  if (!is_16_bit || attention.chosen_rows) return AttentionKernel::own;
  if (has.flash_infer && flash_infer_is_fastest(attention)) return AttentionKernel::flash_infer;
  if (has.cudnn && cudnn_supports(attention)) return AttentionKernel::cudnn;
  return AttentionKernel::own;
}

void attention(const AttentionArguments& arguments, cudaStream_t stream) {
  const auto& a = arguments;
  QKSCOPE_ASSERT(a.n_heads > 0 && a.n_kv_heads > 0 && a.n_heads % a.n_kv_heads == 0);
  QKSCOPE_ASSERT(a.scale > 0.0f);
  QKSCOPE_ASSERT((a.row_sums.lse == nullptr) == (a.row_sums.largest == nullptr));
  if (a.d_head < 1 || a.d_head > 256)
    bad_input(
        "attention on CUDA: heads of {} dimensions; expected 1 to 256. The CPU backend takes any "
        "size",
        a.d_head);
  if (a.queries == 0) return;
  switch (a.dtype) {
    case DType::bf16:
      return attention_16bit<__nv_bfloat16>(a, stream);
    case DType::f16:
      return attention_16bit<__half>(a, stream);
    case DType::f32:
      return attention_f32(a, stream);
    default:
      bad_input("attention on CUDA: {} vectors; expected bfloat16, float16 or float32",
                dtype_name(a.dtype));
  }
}

}  // namespace qkscope::cuda
