#include "engine/ops/elementwise.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/core/convert.h"
#include "base/core/error.h"
#include "base/core/thread_pool.h"
#include "engine/ops/row_kernels.h"

namespace qkscope {
namespace {

constexpr std::int64_t kElementsPerTask = 1 << 15;
constexpr std::int64_t kGatesPerTask = 1 << 14;  // an exponential each

// gate_range(gate, up, count, out) for ranges of the elements.
template <typename GateRange>
void gate_elements(ConstTensorView gate, ConstTensorView up, TensorView out, GateRange gate_range) {
  QKSCOPE_ASSERT(gate.shape() == up.shape() && gate.shape() == out.shape());
  QKSCOPE_ASSERT(gate.is_contiguous() && up.is_contiguous() && out.is_contiguous());
  const float* g = gate.data<float>();
  const float* u = up.data<float>();
  float* o = out.data<float>();
  parallel_ranges(gate.size(), kGatesPerTask, [&](std::int64_t begin, std::int64_t end) {
    gate_range(g + begin, u + begin, end - begin, o + begin);
  });
}

}  // namespace

void embed(std::span<const std::int32_t> ids, const WeightMatrix& table, float scale,
           TensorView y) {
  const auto width = table.values.dim(1);
  const float factor = scale * table.scale;
  parallel_for(static_cast<std::int64_t>(ids.size()), [&](std::int64_t row) {
    const auto id = ids[static_cast<std::size_t>(row)];
    QKSCOPE_ASSERT(id >= 0 && id < table.values.dim(0));
    const std::span<float> out(y.data<float>() + row * width, static_cast<std::size_t>(width));
    widen(table.values.rows(id, id + 1), out);
    if (factor != 1.0f) rows::scale(out.data(), width, factor);
  });
}

void embed_positions(std::span<const Sequence> sequences, const WeightMatrix& table, TensorView y) {
  for (const auto& sequence : sequences) {
    std::vector<std::int32_t> positions(static_cast<std::size_t>(sequence.length));
    std::iota(positions.begin(), positions.end(), static_cast<std::int32_t>(sequence.past));
    embed(positions, table, 1.0f, y.rows(sequence.begin, sequence.begin + sequence.length));
  }
}

void rms_norm(ConstTensorView x, std::span<const float> weight, double eps, TensorView y) {
  const auto n = static_cast<std::int64_t>(weight.size());
  QKSCOPE_ASSERT(x.is_contiguous() && y.is_contiguous() && x.shape() == y.shape());
  QKSCOPE_ASSERT(x.dim(x.rank() - 1) == n);
  const auto rows = x.size() / n;
  parallel_ranges(rows, std::max<std::int64_t>(1, kElementsPerTask / n),
                  [&](std::int64_t begin, std::int64_t end) {
                    rows::rms_norm({x.data<float>() + begin * n, weight.data(), end - begin, n,
                                    static_cast<float>(eps)},
                                   y.data<float>() + begin * n);
                  });
}

void layer_norm(ConstTensorView x, const NormWeights& norm, double eps, TensorView y) {
  const auto n = static_cast<std::int64_t>(norm.weight.size());
  QKSCOPE_ASSERT(x.is_contiguous() && y.is_contiguous() && x.shape() == y.shape());
  QKSCOPE_ASSERT(x.dim(x.rank() - 1) == n);
  QKSCOPE_ASSERT(norm.bias.empty() || norm.bias.size() == norm.weight.size());
  const float* bias = norm.bias.empty() ? nullptr : norm.bias.data();
  parallel_ranges(x.size() / n, std::max<std::int64_t>(1, kElementsPerTask / n),
                  [&](std::int64_t begin, std::int64_t end) {
                    rows::layer_norm({x.data<float>() + begin * n, norm.weight.data(), end - begin,
                                      n, static_cast<float>(eps)},
                                     bias, y.data<float>() + begin * n);
                  });
}

void gated_activation(Activation activation, ConstTensorView gate, ConstTensorView up,
                      TensorView out) {
  gate_elements(gate, up, out, [&](const float* g, const float* u, std::int64_t n, float* o) {
    rows::gate(activation, g, u, n, o);
  });
}

void clamped_swiglu(const ClampedSwiglu& swiglu, ConstTensorView gate, ConstTensorView up,
                    TensorView out) {
  gate_elements(gate, up, out, [&](const float* g, const float* u, std::int64_t n, float* o) {
    rows::clamped_gate(swiglu, g, u, n, o);
  });
}

void apply_activation(Activation activation, const XieluWeights& xielu, TensorView x) {
  QKSCOPE_ASSERT(x.is_contiguous());
  float* values = x.data<float>();
  parallel_ranges(x.size(), kGatesPerTask, [&](std::int64_t begin, std::int64_t end) {
    rows::activate(activation, xielu, values + begin, end - begin);
  });
}

void clip(TensorView x, double limit) {
  QKSCOPE_ASSERT(x.is_contiguous() && limit > 0.0);
  float* values = x.data<float>();
  const auto most = static_cast<float>(limit);
  parallel_ranges(x.size(), kElementsPerTask, [&](std::int64_t begin, std::int64_t end) {
    rows::clip(values + begin, end - begin, most);
  });
}

void scale_by(TensorView x, double factor) {
  QKSCOPE_ASSERT(x.is_contiguous());
  float* values = x.data<float>();
  parallel_ranges(x.size(), kElementsPerTask, [&](std::int64_t begin, std::int64_t end) {
    rows::scale(values + begin, end - begin, static_cast<float>(factor));
  });
}

void add_to(TensorView residual, ConstTensorView update) {
  QKSCOPE_ASSERT(residual.shape() == update.shape() && residual.is_contiguous() &&
                 update.is_contiguous());
  float* r = residual.data<float>();
  const float* u = update.data<float>();
  parallel_ranges(residual.size(), kElementsPerTask, [&](std::int64_t begin, std::int64_t end) {
    rows::add(r + begin, u + begin, end - begin);
  });
}

void soft_cap(TensorView logits, double cap) {
  float* values = logits.data<float>();
  const auto limit = static_cast<float>(cap);
  parallel_ranges(logits.size(), kElementsPerTask, [&](std::int64_t begin, std::int64_t end) {
    rows::soft_cap(values + begin, end - begin, limit);
  });
}

void scale_queries(TensorView q, const QueryScaling& scaling, std::span<const Sequence> sequences,
                   std::span<const std::int64_t> queries) {
  const auto width = q.dim(1) * q.dim(2);
  for (const auto& sequence : sequences) {
    const auto [first, end] = queries_of(sequence, queries);
    parallel_for(end - first, [&, first = first](std::int64_t i) {
      const auto position = sequence.past + row_of_query(first + i, queries) - sequence.begin;
      const auto turns = position / scaling.original_max;
      // The logarithm in float64, rounded: those in float32 differ from library to library.
      const auto logarithm = static_cast<float>(std::log(1.0 + static_cast<double>(turns)));
      const float factor = 1.0f + static_cast<float>(scaling.beta) * logarithm;
      rows::scale(q.data<float>() + (first + i) * width, width, factor);
    });
  }
}

}  // namespace qkscope
