#include "ops/elementwise.h"

#include <algorithm>
#include <cmath>

#include "core/convert.h"
#include "core/error.h"
#include "core/thread_pool.h"
#include "ops/vector_math.h"

namespace qkscope {
namespace {

constexpr std::int64_t kElementsPerTask = 1 << 15;
constexpr std::int64_t kGatesPerTask = 1 << 14;  // an exponential each

float silu(float x) {
  return x / (1.0f + exp_approx(-x));
}

float gelu_tanh(float x) {
  constexpr float kSqrt2OverPi = 0.7978845608028654f;
  const float inner = kSqrt2OverPi * (x + 0.044715f * x * x * x);
  // tanh(u) = 1 - 2 / (exp(2u) + 1)
  return x * (1.0f - 1.0f / (exp_approx(2.0f * inner) + 1.0f));
}

float gelu(float x) {
  return 0.5f * x * (1.0f + std::erf(x * 0.7071067811865476f));
}

template <typename F>
void gate_with(F activation, ConstTensorView gate, ConstTensorView up, TensorView out) {
  const float* g = gate.data<float>();
  const float* u = up.data<float>();
  float* o = out.data<float>();
  parallel_ranges(gate.size(), kGatesPerTask, [=](std::int64_t begin, std::int64_t end) {
    for (auto i = begin; i < end; ++i) o[i] = activation(g[i]) * u[i];
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
    if (factor != 1.0f)
      for (float& value : out) value *= factor;
  });
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

void gated_activation(Activation activation, ConstTensorView gate, ConstTensorView up,
                      TensorView out) {
  QKSCOPE_ASSERT(gate.shape() == up.shape() && gate.shape() == out.shape());
  QKSCOPE_ASSERT(gate.is_contiguous() && up.is_contiguous() && out.is_contiguous());
  switch (activation) {
    case Activation::silu:
      return gate_with([](float x) { return silu(x); }, gate, up, out);
    case Activation::gelu_tanh:
      return gate_with([](float x) { return gelu_tanh(x); }, gate, up, out);
    case Activation::gelu:
      return gate_with([](float x) { return gelu(x); }, gate, up, out);
  }
}

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
