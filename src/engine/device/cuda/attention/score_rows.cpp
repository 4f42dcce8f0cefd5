#include "engine/device/cuda/attention/score_rows.h"

#include <algorithm>

#include "base/core/error.h"
#include "engine/device/backend.h"
#include "engine/device/cuda/memory/device_memory.h"
#include "engine/device/cuda/pass_rows.h"
#include "engine/ops/attention.h"
#include "engine/ops/statistics.h"

namespace qkscope::cuda {
namespace {

constexpr std::int64_t kMostBytes = std::int64_t{128} << 20;  // limit of the scores held on the GPU
constexpr auto kFloat = static_cast<std::int64_t>(sizeof(float));

// Copies rows [begin, begin + count) of every head into `to` (heads, rows, keys) on the host.
void copy_to_host(const float* from, TensorView to, std::int64_t begin, std::int64_t count,
                  cudaStream_t stream) {
  if (to.empty()) return;
  const auto width = static_cast<std::size_t>(count * to.dim(2) * kFloat);
  const auto pitch = static_cast<std::size_t>(to.dim(1) * to.dim(2) * kFloat);
  check(cudaMemcpy2DAsync(to.data<float>() + begin * to.dim(2), pitch, from, width, width,
                          static_cast<std::size_t>(to.dim(0)), cudaMemcpyDeviceToHost, stream),
        "copy scores to the host");
}

}  // namespace

void score_rows(const ScoreRowsArguments& arguments, cudaStream_t stream) {
  const auto& a = arguments;
  QKSCOPE_ASSERT(a.n_heads > 0 && a.n_kv_heads > 0 && a.n_heads % a.n_kv_heads == 0);
  QKSCOPE_ASSERT(a.dtype == DType::bf16 || a.dtype == DType::f16 || a.dtype == DType::f32);
  QKSCOPE_ASSERT(a.d_head > 0);
  if (a.count == 0 || a.keys == 0) return;
  launch_scores(a, stream);
  if (a.pattern != nullptr) launch_patterns(a, stream);
}

void copy_scores_to_host(const RowScores& out, const ScoreSource& source, ActiveRows& rows,
                         cudaStream_t stream) {
  const auto total = static_cast<std::int64_t>(out.rows.size());
  const auto keys = (out.scores.empty() ? out.pattern : out.scores).dim(2);
  const auto step =
      std::clamp<std::int64_t>(kMostBytes / (source.n_heads * keys * kFloat), 1, total);
  const auto bytes = step * source.n_heads * keys * kFloat;
  UploadBuffer numbers;
  DeviceMemory scores;
  DeviceMemory pattern;
  for (std::int64_t begin = 0; begin < total; begin += step) {
    const auto count = std::min(step, total - begin);
    const auto ranges = rows.key_ranges(
        out.rows.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count)),
        source.window);
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
