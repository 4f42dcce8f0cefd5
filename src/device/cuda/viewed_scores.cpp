#include "device/cuda/viewed_scores.h"

#include <algorithm>
#include <vector>

#include "device/cuda/device_memory.h"
#include "device/cuda/score_rows.h"
#include "device/cuda/status.h"
#include "ops/attention_rows.h"

namespace qkscope::cuda {
namespace {

constexpr std::int64_t kMostBytes = std::int64_t{128} << 20;  // of scores on the card
constexpr auto kFloat = static_cast<std::int64_t>(sizeof(float));

// Rows [begin, begin + count) of every head of `to` (heads, rows, keys).
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

void view_scores(const RowScores& out, const ScoreSource& source, PassRows& rows,
                 cudaStream_t stream) {
  const auto total = static_cast<std::int64_t>(out.rows.size());
  const auto keys = (out.scores.empty() ? out.pattern : out.scores).dim(2);
  const auto step =
      std::clamp<std::int64_t>(kMostBytes / (source.n_heads * keys * kFloat), 1, total);
  const auto bytes = step * source.n_heads * keys * kFloat;
  DeviceBlock numbers;
  DeviceBlock scores;
  DeviceBlock pattern;
  for (std::int64_t begin = 0; begin < total; begin += step) {
    const auto count = std::min(step, total - begin);
    const auto places = rows.places(
        out.rows.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count)),
        source.window);
    const auto* at = static_cast<const std::int32_t*>(
        numbers.reserve(static_cast<std::int64_t>(places.size()) * 4, "row numbers"));
    check(cudaMemcpyAsync(numbers.data(), places.data(), places.size() * 4, cudaMemcpyHostToDevice,
                          stream),
          "copy row numbers to the card");
    auto* device_pattern =
        out.pattern.empty() ? nullptr : static_cast<float*>(pattern.reserve(bytes, "patterns"));
    score_rows({.q = source.q,
                .k = source.k,
                .q_stride = source.row_stride,
                .k_stride = source.row_stride,
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
                .dtype = source.dtype,
                .scores = static_cast<float*>(scores.reserve(bytes, "scores")),
                .pattern = device_pattern},
               stream);
    copy_rows(scores.as<float>(), out.scores, begin, count, stream);
    copy_rows(pattern.as<float>(), out.pattern, begin, count, stream);
    check(cudaStreamSynchronize(stream), "wait for scores");
  }
}

AttentionInput EditedScores::input() const {
  return {.q = q, .k = k, .v = v, .sequences = sequences, .scale = scale, .window = window};
}

void EditedScores::score_rows(const RowScores& out) const {
  attention_rows(input(), out.rows, out.scores, out.pattern);
}

void EditedScores::pattern_of_edited_scores(const RowScores& edited) const {
  qkscope::pattern_of_edited_scores(input(), edited.rows, edited.scores, edited.pattern);
}

void EditedScores::attend_edited_rows(const RowScores& edited, TensorView z) const {
  qkscope::attend_edited_rows(input(), edited.rows, edited.scores, edited.pattern, z);
}

}  // namespace qkscope::cuda
