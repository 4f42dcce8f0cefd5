#include "engine/device/cuda/attention/attention.h"

#include <algorithm>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "base/core/error.h"
#include "engine/device/backend.h"
#include "engine/device/cuda/memory/device_memory.h"
#include "engine/device/cuda/pass_rows.h"
#include "engine/ops/attention.h"
#include "engine/ops/statistics.h"

namespace qkscope::cuda {
namespace {

constexpr int kHopper = 90;        // sm_90a code runs on no other architecture
constexpr int kFirstWithMma = 80;  // oldest architecture of cuDNN's fused kernels

// Returns true if FlashInfer's kernel is the fastest one for these properties, as benchmarked.
bool flash_infer_is_fastest(const AttentionProperties& attention) {
  if (attention.capability != kHopper) return false;
  if (attention.d_value != attention.d_head)
    return attention.d_head == 192 && attention.d_value == 128 && !attention.softcap;
  if (attention.softcap) return attention.d_head == 128 || attention.d_head == 256;
  return attention.d_head == 64 || attention.d_head == 96 || attention.d_head == 128 ||
         attention.d_head == 256;
}

// cuDNN's kernel does not support soft caps, chunked attention or a scale per layer. It does not
// return the row sums that attention sinks need either.
bool cudnn_supports(const AttentionProperties& attention) {
  return attention.capability >= kFirstWithMma && !attention.softcap && !attention.sinks &&
         !attention.own_scale && !attention.chunks;
}

constexpr std::int64_t kMostBytes = std::int64_t{128} << 20;  // limit of the scores held on the GPU

// Copies rows [begin, begin + count) of every head into `to` (heads, rows, keys) on the host.
void copy_to_host(const float* from, TensorView to, std::int64_t begin, std::int64_t count,
                  cudaStream_t stream) {
  if (to.empty()) return;
  const auto width = as_index(count * to.dim(2) * kFloatBytes);
  const auto pitch = as_index(to.dim(1) * to.dim(2) * kFloatBytes);
  check(cudaMemcpy2DAsync(to.data<float>() + begin * to.dim(2), pitch, from, width, width,
                          as_index(to.dim(0)), cudaMemcpyDeviceToHost, stream),
        "copy scores to the host");
}

}  // namespace

AttentionKernel choose_attention_kernel(const AttentionProperties& attention,
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
  const auto [narrow, wide] = std::minmax(a.d_head, a.d_value);
  if (narrow < 1 || wide > 512)
    bad_input(
        "attention on CUDA: heads of {} dimensions; expected 1 to 512. The CPU backend takes any "
        "size",
        wide);
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

void score_rows(const ScoreRowsArguments& arguments, cudaStream_t stream) {
  const auto& a = arguments;
  QKSCOPE_ASSERT(a.n_heads > 0 && a.n_kv_heads > 0 && a.n_heads % a.n_kv_heads == 0);
  QKSCOPE_ASSERT(a.dtype == DType::bf16 || a.dtype == DType::f16 || a.dtype == DType::f32);
  QKSCOPE_ASSERT(a.d_head > 0);
  if (a.count == 0 || a.keys == 0) return;
  launch_score_kernel(a, stream);
  if (a.pattern != nullptr) launch_pattern_kernel(a, stream);
}

void copy_scores_to_host(const RowScores& out, const QueriesAndKeys& source, ActiveRows& rows,
                         cudaStream_t stream) {
  const auto total = static_cast<std::int64_t>(out.rows.size());
  const auto keys = (out.scores.empty() ? out.pattern : out.scores).dim(2);
  const auto step =
      std::clamp<std::int64_t>(kMostBytes / (source.n_heads * keys * kFloatBytes), 1, total);
  const auto bytes = step * source.n_heads * keys * kFloatBytes;
  UploadBuffer numbers;
  DeviceMemory scores;
  DeviceMemory pattern;
  for (std::int64_t begin = 0; begin < total; begin += step) {
    const auto count = std::min(step, total - begin);
    const auto ranges = rows.key_ranges(out.rows.subspan(as_index(begin), as_index(count)),
                                        source.window, source.chunk);
    const auto* at = numbers.upload(ranges, "row numbers", stream);
    ScoreRowsArguments arguments{source};
    arguments.rows = at;
    arguments.first_key = at + count;
    arguments.last_key = at + 2 * count;
    arguments.sequence_begin = at + 3 * count;
    arguments.count = count;
    arguments.keys = keys;
    arguments.scores = static_cast<float*>(scores.reserve(bytes, "scores"));
    if (!out.pattern.empty())
      arguments.pattern = static_cast<float*>(pattern.reserve(bytes, "patterns"));
    score_rows(arguments, stream);
    copy_to_host(scores.as<float>(), out.scores, begin, count, stream);
    copy_to_host(pattern.as<float>(), out.pattern, begin, count, stream);
    check(cudaStreamSynchronize(stream), "wait for scores");
  }
}

}  // namespace qkscope::cuda
