// Element types in kernels: values are stored as T and computed in float32.
#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include "engine/device/cuda/memory/device_memory.h"

namespace qkscope::cuda {

constexpr unsigned kAllLanes = 0xffffffffu;  // shuffle mask of a full warp
constexpr float kLog2E = 1.44269504088896340736f;
constexpr float kLn2 = 0.69314718055994530942f;

template <typename T>
__device__ float to_float(T x) {
  return static_cast<float>(x);
}

// Returns x rounded to the nearest value of T.
template <typename T>
__device__ T from_float(float x) {
  return static_cast<T>(x);
}

// Returns x rounded to T and back, as if it had been stored.
template <typename T>
__device__ float round_to_type(float x) {
  return to_float(from_float<T>(x));
}

// N values that are loaded and stored with one memory access.
template <typename T, int N>
struct alignas(sizeof(T) * N) Pack {
  T values[N];
};

// Number of values of T in one 16-byte access.
template <typename T>
constexpr int kPack = 16 / sizeof(T);

// Sum over each group of kLanes adjacent lanes; every lane receives the sum of its group.
template <int kLanes = 32, typename Number>
__device__ Number warp_sum(Number x) {
  for (int offset = kLanes / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(kAllLanes, x, offset);
  return x;
}

// Maximum over the warp; every lane receives it.
__device__ inline float warp_max(float x) {
  for (int offset = 16; offset > 0; offset /= 2)
    x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, offset));
  return x;
}

// Sum over each quad of four adjacent lanes; every lane receives the sum of its quad.
__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(kAllLanes, x, 1);
  return x + __shfl_xor_sync(kAllLanes, x, 2);
}

// One step of a butterfly reduction of many values over lanes kDistance apart: each lane sends the
// kHalf values that it does not keep. Lanes with bit kDistance set keep the upper half.
template <int kHalf, int kDistance, int kValues>
__device__ __forceinline__ void reduce_across_lanes(float (&values)[kValues]) {
  static_assert(2 * kHalf <= kValues);
  const bool upper = (threadIdx.x & kDistance) != 0;
#pragma unroll
  for (int i = 0; i < kHalf; ++i) {
    const float sent = upper ? values[i] : values[i + kHalf];
    const float kept = upper ? values[i + kHalf] : values[i];
    values[i] = kept + __shfl_xor_sync(kAllLanes, sent, kDistance);
  }
}

// Calls run(T{}) with the C++ type of `dtype`, which must be f32, f16 or bf16.
template <typename Run>
void dispatch_element_type(DType dtype, Run run) {
  if (dtype == DType::bf16)
    run(__nv_bfloat16{});
  else if (dtype == DType::f16)
    run(__half{});
  else
    run(float{});
}

// Calls run(T{}) with the C++ type of `dtype`, which must be f16 or bf16.
template <typename Run>
void dispatch_16bit_type(DType dtype, Run run) {
  if (dtype == DType::bf16)
    run(__nv_bfloat16{});
  else
    run(__half{});
}

// Calls run(std::integral_constant) with the first width >= `needed`, else the last; widths ascend.
template <int kWidth, int... kWider, typename Run>
void dispatch_width(std::int64_t needed, Run run) {
  if constexpr (sizeof...(kWider) > 0)
    if (needed > kWidth) return dispatch_width<kWider...>(needed, run);
  run(std::integral_constant<int, kWidth>{});
}

// Calls run.operator()<V>() for accesses to V values of T: V is kPack<T> if `aligned`, else 1.
template <typename T, typename Run>
void dispatch_pack_size(bool aligned, Run run) {
  if (aligned)
    run.template operator()<kPack<T>>();
  else
    run.template operator()<1>();
}

// Calls launch(T{}, blocks) if `blocks` > 0; T is the type of `dtype`. Errors name `operation`.
template <typename Launch>
void launch_for_dtype(DType dtype, std::int64_t blocks, const char* operation, Launch launch) {
  if (blocks == 0) return;
  dispatch_element_type(dtype, [&](auto type) { launch(type, static_cast<unsigned>(blocks)); });
  check_launch(operation);
}

// Launches `kernel` with `bytes` bytes of dynamic shared memory per block.
template <typename... Parameters, typename... Arguments>
void launch_with_shared_memory(const char* operation, void (*kernel)(Parameters...),
                               std::int64_t blocks, int threads, int bytes, cudaStream_t stream,
                               const Arguments&... arguments) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
        operation);
  kernel<<<static_cast<unsigned>(blocks), threads, bytes, stream>>>(arguments...);
  check_launch(operation);
}

}  // namespace qkscope::cuda
