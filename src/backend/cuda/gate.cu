#include "backend/cuda/elements.cuh"
#include "backend/cuda/gate.h"
#include "backend/cuda/status.h"

namespace qkscope::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T, Activation activation>
__device__ float activate(float x) {
  if constexpr (activation == Activation::silu) {
    // The fast exponential is off by some 1e-7 of the result, far below what 16 bits hold.
    const float e = sizeof(T) == 4 ? expf(-x) : __expf(-x);
    return x / (1.0f + e);
  } else if constexpr (activation == Activation::gelu_tanh) {
    const float inner = 0.7978845608028654f * (x + 0.044715f * x * x * x);
    return 0.5f * x * (1.0f + tanhf(inner));
  } else {
    return 0.5f * x * (1.0f + erff(x * 0.7071067811865476f));
  }
}

// A block takes a part of one row.
template <typename T, int V, Activation activation>
__global__ void gate_kernel(T* gate_up, int packs) {
  using Values = Pack<T, V>;
  const int at = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x);
  if (at >= packs) return;
  auto* row =
      reinterpret_cast<Values*>(gate_up) + static_cast<std::int64_t>(blockIdx.x) * 2 * packs;
  Values g = row[at];
  const Values u = row[packs + at];
#pragma unroll
  for (int i = 0; i < V; ++i)
    g.values[i] =
        from_float<T>(activate<T, activation>(to_float(g.values[i])) * to_float(u.values[i]));
  row[at] = g;
}

template <typename T>
__global__ void soft_cap_kernel(T* x, std::int64_t count, float cap) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) x[i] = from_float<T>(cap * tanhf(to_float(x[i]) / cap));
}

template <typename T, Activation activation>
void launch(void* gate_up, std::int64_t rows, std::int64_t n, cudaStream_t stream) {
  const auto run = [&]<int V>() {
    const auto packs = static_cast<int>(n / V);
    const dim3 blocks(static_cast<unsigned>(rows),
                      static_cast<unsigned>((packs + kThreads - 1) / kThreads));
    gate_kernel<T, V, activation><<<blocks, kThreads, 0, stream>>>(static_cast<T*>(gate_up), packs);
  };
  if (n % kPack<T> == 0)
    run.template operator()<kPack<T>>();
  else
    run.template operator()<1>();
}

}  // namespace

void gate(Activation activation, void* gate_up, std::int64_t rows, std::int64_t n, DType dtype,
          cudaStream_t stream) {
  if (rows == 0) return;
  with_type(dtype, [&](auto type) {
    using T = decltype(type);
    if (activation == Activation::silu)
      launch<T, Activation::silu>(gate_up, rows, n, stream);
    else if (activation == Activation::gelu_tanh)
      launch<T, Activation::gelu_tanh>(gate_up, rows, n, stream);
    else
      launch<T, Activation::gelu>(gate_up, rows, n, stream);
  });
  check_launch("apply the MLP's gate");
}

void soft_cap(void* x, std::int64_t count, float cap, DType dtype, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((count + kThreads - 1) / kThreads);
  if (blocks == 0) return;
  with_type(dtype, [&](auto type) {
    using T = decltype(type);
    soft_cap_kernel<T><<<blocks, kThreads, 0, stream>>>(static_cast<T*>(x), count, cap);
  });
  check_launch("cap the logits");
}

}  // namespace qkscope::cuda
