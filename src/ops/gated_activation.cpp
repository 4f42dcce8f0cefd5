#include "ops/gated_activation.h"

#include <cmath>

#include "core/error.h"
#include "core/thread_pool.h"
#include "ops/vector_math.h"

namespace qkscope {
namespace {

constexpr std::int64_t kElementsPerTask = 1 << 14;

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
  parallel_ranges(gate.size(), kElementsPerTask, [=](std::int64_t begin, std::int64_t end) {
    for (auto i = begin; i < end; ++i) o[i] = activation(g[i]) * u[i];
  });
}

}  // namespace

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

}  // namespace qkscope
