#include "ops/elementwise.h"

#include <cmath>

#include "core/error.h"
#include "core/thread_pool.h"

namespace qkscope {
namespace {

constexpr std::int64_t kElementsPerTask = 1 << 15;

}  // namespace

void add_to(TensorView residual, ConstTensorView update) {
  QKSCOPE_ASSERT(residual.shape() == update.shape() && residual.is_contiguous() &&
                 update.is_contiguous());
  float* r = residual.data<float>();
  const float* u = update.data<float>();
  parallel_ranges(residual.size(), kElementsPerTask, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = begin; i < end; ++i) r[i] += u[i];
  });
}

void soft_cap(TensorView logits, double cap) {
  float* values = logits.data<float>();
  const auto limit = static_cast<float>(cap);
  parallel_ranges(logits.size(), kElementsPerTask, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = begin; i < end; ++i) values[i] = limit * std::tanh(values[i] / limit);
  });
}

void scale_queries(TensorView q, const QueryScaling& scaling, std::span<const Sequence> sequences,
                   std::span<const std::int64_t> queries) {
  const auto width = q.dim(1) * q.dim(2);
  for (const auto& sequence : sequences) {
    const auto [first, end] = queries_of(sequence, queries);
    parallel_for(end - first, [&, first = first](std::int64_t i) {
      const auto position = row_of_query(first + i, queries) - sequence.begin;
      const auto turns = static_cast<float>(position / scaling.original_max);
      const float factor = 1.0f + static_cast<float>(scaling.beta) * std::log(1.0f + turns);
      float* row = q.data<float>() + (first + i) * width;
      for (std::int64_t j = 0; j < width; ++j) row[j] *= factor;
    });
  }
}

}  // namespace qkscope
