#include "engine/ops/elementwise.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/core/convert.h"
#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/thread_pool.h"
#include "engine/ops/attention.h"
#include "engine/ops/row_kernels.h"

namespace qkscope {
namespace {

constexpr std::int64_t kElementsPerTask = 1 << 15;
constexpr std::int64_t kGatesPerTask = 1 << 14;  // each costs an exponential

// Calls body(values, count) for ranges of a contiguous tensor, in parallel.
template <typename Body>
void for_each_element_range(TensorView x, std::int64_t elements_per_task, Body body) {
  QKSCOPE_ASSERT(x.is_contiguous());
  float* values = x.data<float>();
  parallel_for_ranges(x.size(), elements_per_task, [&](std::int64_t begin, std::int64_t end) {
    body(values + begin, end - begin);
  });
}

// Calls gate_range(gate, up, count, out) for ranges of the elements, in parallel.
template <typename GateRange>
void gate_elements(ConstTensorView gate, ConstTensorView up, TensorView out, GateRange gate_range) {
  QKSCOPE_ASSERT(gate.shape() == up.shape() && gate.shape() == out.shape());
  QKSCOPE_ASSERT(gate.is_contiguous() && up.is_contiguous());
  for_each_element_range(out, kGatesPerTask, [&](float* o, std::int64_t count) {
    const auto begin = o - out.data<float>();
    gate_range(gate.data<float>() + begin, up.data<float>() + begin, count, o);
  });
}

// Calls norm_rows(rows of x, rows of y) for ranges of rows, in parallel.
template <typename NormRows>
void for_each_norm_range(ConstTensorView x, std::span<const float> weight, double eps, TensorView y,
                         NormRows norm_rows) {
  const auto n = std::ssize(weight);
  QKSCOPE_ASSERT(x.is_contiguous() && y.is_contiguous() && x.shape() == y.shape());
  QKSCOPE_ASSERT(x.dim(x.rank() - 1) == n);
  parallel_for_ranges(x.size() / n, std::max<std::int64_t>(1, kElementsPerTask / n),
                      [&](std::int64_t begin, std::int64_t end) {
                        norm_rows(rows::NormInput{x.data<float>() + begin * n, weight.data(),
                                                  end - begin, n, static_cast<float>(eps)},
                                  y.data<float>() + begin * n);
                      });
}

}  // namespace

void embed(std::span<const std::int32_t> ids, const WeightMatrix& table, float scale,
           TensorView y) {
  const auto width = table.values.dim(1);
  const float factor = scale * table.scale;
  parallel_for(std::ssize(ids), [&](std::int64_t row) {
    const auto id = ids[as_index(row)];
    QKSCOPE_ASSERT(id >= 0 && id < table.values.dim(0));
    const std::span<float> out(y.data<float>() + row * width, as_index(width));
    convert_to_float32(table.values.rows(id, id + 1), out);
    if (factor != 1.0f) rows::scale(out.data(), width, factor);
  });
}

void embed_positions(std::span<const Sequence> sequences, const WeightMatrix& table, TensorView y) {
  for (const auto& sequence : sequences) {
    std::vector<std::int32_t> positions(as_index(sequence.length));
    std::iota(positions.begin(), positions.end(), static_cast<std::int32_t>(sequence.past));
    embed(positions, table, 1.0f, y.rows(sequence.begin, sequence.begin + sequence.length));
  }
}

void rms_norm(ConstTensorView x, std::span<const float> weight, double eps, TensorView y) {
  for_each_norm_range(x, weight, eps, y, rows::rms_norm);
}

void layer_norm(ConstTensorView x, const NormWeights& norm, double eps, TensorView y) {
  QKSCOPE_ASSERT(norm.bias.empty() || norm.bias.size() == norm.weight.size());
  const float* bias = norm.bias.empty() ? nullptr : norm.bias.data();
  for_each_norm_range(x, norm.weight, eps, y, [&](const rows::NormInput& input, float* out) {
    rows::layer_norm(input, bias, out);
  });
}

void normalize(NormKind kind, ConstTensorView x, const NormWeights& norm, double eps,
               TensorView y) {
  if (norm.empty()) {
    if (y.bytes() != x.bytes()) std::memcpy(y.bytes(), x.bytes(), x.size_bytes());
  } else if (kind == NormKind::layer) {
    layer_norm(x, norm, eps, y);
  } else {
    rms_norm(x, norm.weight, eps, y);
  }
}

void gated_activation(Activation activation, ConstTensorView gate, ConstTensorView up,
                      TensorView out) {
  gate_elements(gate, up, out, [&](const float* g, const float* u, std::int64_t n, float* o) {
    rows::apply_gate(activation, g, u, n, o);
  });
}

void clamped_swiglu(const ClampedSwiglu& swiglu, ConstTensorView gate, ConstTensorView up,
                    TensorView out) {
  gate_elements(gate, up, out, [&](const float* g, const float* u, std::int64_t n, float* o) {
    rows::apply_clamped_gate(swiglu, g, u, n, o);
  });
}

void apply_activation(Activation activation, const XieluWeights& xielu, TensorView x) {
  for_each_element_range(x, kGatesPerTask, [&](float* values, std::int64_t count) {
    rows::activate(activation, xielu, values, count);
  });
}

void clip(TensorView x, double limit) {
  QKSCOPE_ASSERT(limit > 0.0);
  for_each_element_range(x, kElementsPerTask, [&](float* values, std::int64_t count) {
    rows::clip(values, count, static_cast<float>(limit));
  });
}

void scale_by(TensorView x, double factor) {
  for_each_element_range(x, kElementsPerTask, [&](float* values, std::int64_t count) {
    rows::scale(values, count, static_cast<float>(factor));
  });
}

void add_update(TensorView residual, ConstTensorView update) {
  QKSCOPE_ASSERT(residual.shape() == update.shape() && update.is_contiguous());
  for_each_element_range(residual, kElementsPerTask, [&](float* values, std::int64_t count) {
    rows::add(values, update.data<float>() + (values - residual.data<float>()), count);
  });
}

void multiply_elements(TensorView x, ConstTensorView y) {
  QKSCOPE_ASSERT(x.shape() == y.shape() && y.is_contiguous());
  for_each_element_range(x, kElementsPerTask, [&](float* values, std::int64_t count) {
    rows::multiply(values, y.data<float>() + (values - x.data<float>()), count);
  });
}

void soft_cap(TensorView logits, double cap) {
  for_each_element_range(logits, kElementsPerTask, [&](float* values, std::int64_t count) {
    rows::soft_cap(values, count, static_cast<float>(cap));
  });
}

void scale_queries(TensorView q, const QueryScaling& scaling, std::span<const Sequence> sequences,
                   std::span<const std::int64_t> queries) {
  const auto width = q.dim(1) * q.dim(2);
  for (const auto& sequence : sequences) {
    const auto [first, end] = query_range(sequence, queries);
    parallel_for(end - first, [&, first = first](std::int64_t i) {
      const auto position = sequence.past + row_of_query(first + i, queries) - sequence.begin;
      const auto periods = (position + scaling.shift) / scaling.original_max;
      // The logarithm is computed in float64, because float32 logarithms differ between libraries.
      const auto logarithm = static_cast<float>(std::log(1.0 + static_cast<double>(periods)));
      const float factor = 1.0f + static_cast<float>(scaling.beta) * logarithm;
      rows::scale(q.data<float>() + (first + i) * width, width, factor);
    });
  }
}

}  // namespace qkscope
