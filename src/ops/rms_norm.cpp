#include "ops/rms_norm.h"

#include <cmath>

#include "core/error.h"
#include "core/thread_pool.h"
#include "ops/vector_math.h"

namespace qkscope {
namespace {
constexpr std::int64_t kElementsPerTask = 1 << 15;
}

void rms_norm(ConstTensorView x, std::span<const float> weight, double eps, TensorView y) {
  const auto n = static_cast<std::int64_t>(weight.size());
  QKSCOPE_ASSERT(x.is_contiguous() && y.is_contiguous() && x.shape() == y.shape());
  QKSCOPE_ASSERT(x.dim(x.rank() - 1) == n);
  const auto rows = x.size() / n;
  parallel_ranges(
      rows, std::max<std::int64_t>(1, kElementsPerTask / n),
      [&](std::int64_t begin, std::int64_t end) {
        for (auto row = begin; row < end; ++row) {
          const float* in = x.data<float>() + row * n;
          float* out = y.data<float>() + row * n;
          const float squares = lane_sum(n, [&](std::int64_t i) { return in[i] * in[i]; });
          const float scale =
              1.0f / std::sqrt(squares / static_cast<float>(n) + static_cast<float>(eps));
          for (std::int64_t i = 0; i < n; ++i)
            out[i] = in[i] * scale * weight[static_cast<std::size_t>(i)];
        }
      });
}

}  // namespace qkscope
