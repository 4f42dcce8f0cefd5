#include "engine/device/cuda/attention/score_rows.h"

#include <algorithm>
#include <vector>

#include "base/core/error.h"
#include "engine/device/backend.h"
#include "engine/device/cuda/cuda_error.h"
#include "engine/device/cuda/memory/device_memory.h"
#include "engine/device/cuda/pass_rows.h"
#include "engine/ops/attention.h"
#include "engine/ops/statistics.h"

namespace qkscope::cuda {
namespace {

constexpr std::int64_t kMostBytes = std::int64_t{128} << 20;  // limit of the scores held on the GPU
constexpr auto kFloat = static_cast<std::int64_t>(sizeof(float));

// Copies rows [begin, begin + count) of every head into `to` (heads, rows, keys).
void copy_rows(const float* from, TensorView to, std::int64_t begin, std::int64_t count,
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

void show_scores(const RowScores& out, const ScoreSource& source, PassRows& rows,
                 cudaStream_t stream) {
  const auto total = static_cast<std::int64_t>(out.rows.size());
  const auto keys = (out.scores.empty() ? out.pattern : out.scores).dim(2);
  const auto step =
      std::clamp<std::int64_t>(kMostBytes / (source.n_heads * keys * kFloat), 1, total);
  const auto bytes = step * source.n_heads * keys * kFloat;
  UploadBuffer numbers;
  DeviceBlock scores;
  DeviceBlock pattern;
  for (std::int64_t begin = 0; begin < total; begin += step) {
    const auto count = std::min(step, total - begin);
    const auto places = rows.places(
        out.rows.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count)),
        source.window);
    const auto* at = numbers.upload(std::span(places), "row numbers", stream);
    auto* device_pattern =
        out.pattern.empty() ? nullptr : static_cast<float*>(pattern.reserve(bytes, "patterns"));
    score_rows({.q = source.q,
                .k = source.k,
                .q_stride = source.row_stride,
                .k_stride = source.k_stride,
                .rows = at,
                .first_key = at + count,
                .last_key = at + 2 * count,
                .sequence_begin = at + 3 * count,
                .count = count,
                .keys = keys,
                .n_heads = source.n_heads,
                .n_kv_heads = source.n_kv_heads,
                .d_head = source.d_head,
                .scale = source.scale,
                .softcap = source.softcap,
                .dtype = source.dtype,
                .scores = static_cast<float*>(scores.reserve(bytes, "scores")),
                .pattern = device_pattern,
                .sinks = source.sinks},
               stream);
    copy_rows(scores.as<float>(), out.scores, begin, count, stream);
    copy_rows(pattern.as<float>(), out.pattern, begin, count, stream);
    check(cudaStreamSynchronize(stream), "wait for scores");
  }
}

AttentionInput HostAttention::input() const {
  return {.q = q,
          .k = k,
          .v = v,
          .sequences = sequences,
          .scale = scale,
          .window = window,
          .softcap = softcap,
          .sinks = sinks};
}

void HostAttention::score_rows(const RowScores& out) const {
  qkscope::score_rows(input(), out.rows, out.scores, out.pattern);
}

void HostAttention::pattern_of_edited_scores(const RowScores& edited) const {
  qkscope::pattern_of_edited_scores(input(), edited.rows, edited.scores, edited.pattern);
}

void HostAttention::attend_edited_rows(const RowScores& edited, TensorView z) const {
  qkscope::attend_edited_rows(input(), edited.rows, edited.scores, edited.pattern, z);
}

LayerAttention HostAttention::statistics(std::span<const rows::RunningSoftmax> row_sums,
                                         std::span<const std::int32_t> ids,
                                         const AttentionRequest& request) const {
  return attention_statistics({input(), row_sums, ids}, request);
}

}  // namespace qkscope::cuda
