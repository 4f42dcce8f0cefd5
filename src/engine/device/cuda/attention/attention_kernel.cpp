#include "engine/device/cuda/attention/attention_kernel.h"

#include "base/core/error.h"

namespace qkscope::cuda {

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
      return attention_bf16(a, stream);
    case DType::f16:
      return attention_f16(a, stream);
    case DType::f32:
      return attention_f32(a, stream);
    default:
      bad_input("attention on CUDA: {} vectors; expected bfloat16, float16 or float32",
                dtype_name(a.dtype));
  }
}

}  // namespace qkscope::cuda
