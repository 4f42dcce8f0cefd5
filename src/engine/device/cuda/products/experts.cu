#include <cmath>

#include "engine/device/cuda/elements.cuh"
#include "engine/device/cuda/pass_kernels.h"

namespace qkscope::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kThreads = 256;

// A logit and its index; NaN sorts before every number.
struct Candidate {
  float logit;
  int expert;
};

__device__ float sortable(float logit) {
  return isnan(logit) ? INFINITY : logit;
}

__device__ bool comes_before(Candidate a, Candidate b) {
  const float x = sortable(a.logit);
  const float y = sortable(b.logit);
  return x > y || (x == y && a.expert < b.expert);
}

// One warp per row. Each of the k rounds finds the best candidate that sorts after the previous
// one.
template <typename T>
__global__ void choose_kernel(ChooseExpertsArguments a) {
  const std::int64_t row = blockIdx.x;
  const int lane = static_cast<int>(threadIdx.x);
  const int experts = static_cast<int>(a.experts);
  const T* logits = static_cast<const T*>(a.logits) + row * a.experts;
  float* weights = a.weights + row * a.k;
  float* indices = a.indices + row * a.k;
  Candidate last{INFINITY, -1};
  float highest = 0.0f;
  float sum = 0.0f;
  for (int i = 0; i < a.k; ++i) {
    Candidate best{-INFINITY, experts};
    for (int expert = lane; expert < experts; expert += kWarp) {
      const Candidate here{to_float(logits[expert]), expert};
      if (comes_before(last, here) && comes_before(here, best)) best = here;
    }
    for (int offset = kWarp / 2; offset > 0; offset /= 2) {
      const Candidate other{__shfl_xor_sync(kAllLanes, best.logit, offset),
                            __shfl_xor_sync(kAllLanes, best.expert, offset)};
      if (comes_before(other, best)) best = other;
    }
    if (i == 0) highest = best.logit;
    sum += expf(best.logit - highest);
    if (lane == 0) {
      indices[i] = static_cast<float>(best.expert);
      weights[i] = best.logit;
    }
    last = best;
  }
  if (!a.normalized) {
    sum = 0.0f;
    for (int expert = lane; expert < experts; expert += kWarp)
      sum += expf(to_float(logits[expert]) - highest);
    sum = warp_sum(sum);
  }
  __syncwarp();
  for (int i = lane; i < a.k; i += kWarp) weights[i] = expf(weights[i] - highest) / sum;
}

template <typename T>
__global__ void combine_kernel(CombineExpertsArguments a) {
  const std::int64_t row = blockIdx.x;
  const T* x = static_cast<const T*>(a.x);
  T* y = static_cast<T*>(a.y) + row * a.n;
  const float* weights = a.weights + row * a.k;
  const std::int32_t* places = a.places + row * a.k;
  for (std::int64_t i = threadIdx.x; i < a.n; i += blockDim.x) {
    float sum = 0.0f;
    for (std::int64_t j = 0; j < a.k; ++j)
      sum += weights[j] * to_float(x[static_cast<std::int64_t>(places[j]) * a.n + i]);
    y[i] = from_float<T>(a.factor * sum);
  }
}

}  // namespace

void choose_experts(const ChooseExpertsArguments& a, cudaStream_t stream) {
  launch_typed(a.dtype, a.rows, "choose experts", [&](auto type, unsigned blocks) {
    choose_kernel<decltype(type)><<<blocks, kWarp, 0, stream>>>(a);
  });
}

void combine_experts(const CombineExpertsArguments& a, cudaStream_t stream) {
  launch_typed(a.dtype, a.rows, "add up what experts made", [&](auto type, unsigned blocks) {
    combine_kernel<decltype(type)><<<blocks, kThreads, 0, stream>>>(a);
  });
}

}  // namespace qkscope::cuda
