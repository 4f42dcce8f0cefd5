#include "device/cuda/score_rows.h"

#include "core/error.h"
#include "device/cuda/score_rows_kernel.h"

namespace qkscope::cuda {

void score_rows(const ScoreRowsArguments& arguments, cudaStream_t stream) {
  const auto& a = arguments;
  QKSCOPE_ASSERT(a.n_heads > 0 && a.n_kv_heads > 0 && a.n_heads % a.n_kv_heads == 0);
  QKSCOPE_ASSERT(a.dtype == DType::bf16 || a.dtype == DType::f16 || a.dtype == DType::f32);
  QKSCOPE_ASSERT(a.d_head > 0);
  if (a.count == 0 || a.keys == 0) return;
  launch_scores(a, stream);
  if (a.pattern != nullptr) launch_patterns(a, stream);
}

}  // namespace qkscope::cuda
