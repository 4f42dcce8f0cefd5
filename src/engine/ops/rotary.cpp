#include "engine/ops/rotary.h"

#include "base/core/error.h"
#include "base/core/thread_pool.h"
#include "engine/ops/row_kernels.h"

namespace qkscope {
namespace {

constexpr std::int64_t kRowsPerTask = 64;

}  // namespace

RotaryTable rotary_table(const RopeConfig& rope, std::span<const Sequence> sequences) {
  const auto half = rope.dim / 2;
  const auto rows = sequences.empty() ? 0 : sequences.back().begin + sequences.back().length;
  RotaryTable table{Tensor({rows, half}), Tensor({rows, half})};
  for (const auto& sequence : sequences) {
    const auto frequencies = rope_frequencies(rope, sequence.end());
    parallel_ranges(sequence.length, kRowsPerTask, [&](std::int64_t first, std::int64_t end) {
      for (auto row = first; row < end; ++row) {
        const auto at = (sequence.begin + row) * half;
        rows::angles(static_cast<float>(sequence.past + row), frequencies.inverse.data(), half,
                     frequencies.attention_factor, table.cos.data<float>() + at,
                     table.sin.data<float>() + at);
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
  parallel_ranges(rows, kRowsPerTask, [&](std::int64_t begin, std::int64_t end) {
    for (auto row = begin; row < end; ++row)
      for (std::int64_t head = 0; head < heads; ++head)
        rows::turn(x.data<float>() + (row * heads + head) * d_head,
                   table.cos.data<float>() + row * half, table.sin.data<float>() + row * half, half,
                   interleaved);
  });
}

}  // namespace qkscope
