#include "engine/device/cuda/cuda_error.h"
#include "engine/device/cuda/elements.cuh"
#include "engine/device/cuda/norm.h"

namespace qkscope::cuda {
namespace {

constexpr int kMostThreads = 1024;

__device__ float block_sum(float x) {
  __shared__ float sums[kMostThreads / 32];
  x = warp_sum(x);
  __syncthreads();  // the previous sum has been read
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = x;
  __syncthreads();
  float total = 0.0f;
  for (int warp = 0; warp < static_cast<int>(blockDim.x) / 32; ++warp) total += sums[warp];
  return total;
}

// One block per row; a thread holds up to kPacks packs of V values.
template <typename T, int V, int kPacks, NormKind kKind>
__global__ void norm_kernel(NormArguments a) {
  using Values = Pack<T, V>;
  const int packs = static_cast<int>(a.n) / V;
  const auto number = static_cast<std::int64_t>(blockIdx.x);
  const std::int64_t row = number * (a.row_stride / V);
  const auto* x = static_cast<const Values*>(a.x) + row;
  float held[kPacks][V];
  float sum = 0.0f;
#pragma unroll
  for (int j = 0; j < kPacks; ++j) {
    const int at = static_cast<int>(threadIdx.x + j * blockDim.x);
    if (at >= packs) continue;
    const Values values = x[at];
#pragma unroll
    for (int i = 0; i < V; ++i) {
      held[j][i] = to_float(values.values[i]);
      sum += held[j][i];
    }
  }
  const auto n = static_cast<float>(a.n);
  const float mean = kKind == NormKind::layer ? block_sum(sum) / n : 0.0f;
  float squares = 0.0f;
#pragma unroll
  for (int j = 0; j < kPacks; ++j) {
    if (static_cast<int>(threadIdx.x + j * blockDim.x) >= packs) continue;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      if constexpr (kKind == NormKind::layer) held[j][i] -= mean;
      squares += held[j][i] * held[j][i];
    }
  }
  float scale = 1.0f;
  if (a.norm.weight != nullptr) scale = rsqrtf(block_sum(squares) / n + a.eps);
#pragma unroll
  for (int j = 0; j < kPacks; ++j) {
    const int at = static_cast<int>(threadIdx.x + j * blockDim.x);
    if (at >= packs) continue;
    Values out;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float weight = a.norm.weight == nullptr ? 1.0f : a.norm.weight[at * V + i];
      float value = held[j][i] * scale * weight;
      if (a.norm.bias != nullptr) value += a.norm.bias[at * V + i];
      out.values[i] = from_float<T>(value);
    }
    if (a.y != nullptr) (static_cast<Values*>(a.y) + row)[at] = out;
    if (a.residual == nullptr) continue;
    auto* residual = static_cast<Values*>(a.residual) + number * packs;
    Values sum = residual[at];
#pragma unroll
    for (int i = 0; i < V; ++i)
      sum.values[i] = from_float<T>(to_float(sum.values[i]) + to_float(out.values[i]));
    residual[at] = sum;
  }
}

int threads_for(int packs, int per_thread) {
  const int threads = (packs + per_thread - 1) / per_thread;
  return (threads + 31) / 32 * 32;
}

template <typename T, int V, NormKind kKind>
void launch(const NormArguments& a, cudaStream_t stream) {
  const int packs = static_cast<int>(a.n) / V;
  const auto blocks = static_cast<unsigned>(a.rows);
  if (packs <= 256)
    norm_kernel<T, V, 1, kKind><<<blocks, threads_for(packs, 1), 0, stream>>>(a);
  else if (packs <= 512)
    norm_kernel<T, V, 2, kKind><<<blocks, threads_for(packs, 2), 0, stream>>>(a);
  else if (packs <= 1024)
    norm_kernel<T, V, 4, kKind><<<blocks, threads_for(packs, 4), 0, stream>>>(a);
  else
    norm_kernel<T, V, 16, kKind><<<blocks, threads_for(packs, 16), 0, stream>>>(a);
}

// Adds an update without a norm, whatever norm the model uses.
template <typename T, int V>
void launch(const NormArguments& a, cudaStream_t stream) {
  if (a.kind == NormKind::layer && a.norm.weight != nullptr)
    launch<T, V, NormKind::layer>(a, stream);
  else
    launch<T, V, NormKind::rms>(a, stream);
}

}  // namespace

void norm(const NormArguments& arguments, cudaStream_t stream) {
  auto a = arguments;
  if (a.rows == 0) return;
  if (a.row_stride == 0) a.row_stride = a.n;
  with_type(a.dtype, [&](auto type) {
    using T = decltype(type);
    const auto whole = [](const void* data) {
      return reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
    };
    if (a.n % kPack<T> == 0 && a.row_stride % kPack<T> == 0 && whole(a.x) && whole(a.y))
      launch<T, kPack<T>>(a, stream);
    else
      launch<T, 1>(a, stream);
  });
  check_launch("normalise activations");
}

}  // namespace qkscope::cuda
