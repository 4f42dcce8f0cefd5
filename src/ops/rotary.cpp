#include "ops/rotary.h"

#include <cmath>

#include "core/error.h"
#include "core/thread_pool.h"

namespace qkscope {
namespace {

constexpr std::int64_t kRowsPerTask = 64;

void turn_halves(float* x, const float* cos, const float* sin, std::int64_t half) {
  for (std::int64_t i = 0; i < half; ++i) {
    const float first = x[i];
    const float second = x[i + half];
    x[i] = first * cos[i] - second * sin[i];
    x[i + half] = second * cos[i] + first * sin[i];
  }
}

void turn_pairs(float* x, const float* cos, const float* sin, std::int64_t half) {
  for (std::int64_t i = 0; i < half; ++i) {
    const float first = x[2 * i];
    const float second = x[2 * i + 1];
    x[2 * i] = first * cos[i] - second * sin[i];
    x[2 * i + 1] = second * cos[i] + first * sin[i];
  }
}

}  // namespace

RotaryTable rotary_table(const RopeConfig& rope, std::span<const Sequence> sequences) {
  const auto half = rope.dim / 2;
  const auto rows = sequences.empty() ? 0 : sequences.back().begin + sequences.back().length;
  RotaryTable table{Tensor({rows, half}), Tensor({rows, half})};
  for (const auto& sequence : sequences) {
    const auto frequencies = rope_frequencies(rope, sequence.length);
    parallel_ranges(sequence.length, kRowsPerTask, [&](std::int64_t first, std::int64_t end) {
      for (auto position = first; position < end; ++position)
        for (std::int64_t i = 0; i < half; ++i) {
          const auto at = (sequence.begin + position) * half + i;
          const float angle =
              static_cast<float>(position) * frequencies.inverse[static_cast<std::size_t>(i)];
          table.cos.data<float>()[at] = std::cos(angle) * frequencies.attention_factor;
          table.sin.data<float>()[at] = std::sin(angle) * frequencies.attention_factor;
        }
    });
  }
  return table;
}

void apply_rotary(const RotaryTable& table, bool interleaved, TensorView x) {
  const auto rows = x.dim(0);
  const auto heads = x.dim(1);
  const auto d_head = x.dim(2);
  const auto half = table.cos.dim(1);
  QKSCOPE_ASSERT(x.is_contiguous() && table.cos.dim(0) == rows && 2 * half <= d_head);
  const auto turn = interleaved ? turn_pairs : turn_halves;
  parallel_ranges(rows, kRowsPerTask, [&](std::int64_t begin, std::int64_t end) {
    for (auto row = begin; row < end; ++row)
      for (std::int64_t head = 0; head < heads; ++head)
        turn(x.data<float>() + (row * heads + head) * d_head, table.cos.data<float>() + row * half,
             table.sin.data<float>() + row * half, half);
  });
}

}  // namespace qkscope
