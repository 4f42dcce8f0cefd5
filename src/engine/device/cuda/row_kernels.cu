#include <algorithm>

#include "engine/device/cuda/cuda_error.h"
#include "engine/device/cuda/elements.cuh"
#include "engine/device/cuda/row_kernels.h"

namespace qkscope::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T>
__global__ void embed_kernel(EmbedArguments a) {
  const std::int64_t row = blockIdx.x;
  const T* from = static_cast<const T*>(a.table) + static_cast<std::int64_t>(a.ids[row]) * a.n;
  T* to = static_cast<T*>(a.y) + row * a.n;
  const float scale = rounded<T>(a.scale);
  for (std::int64_t i = threadIdx.x; i < a.n; i += blockDim.x)
    to[i] = from_float<T>(to_float(from[i]) * scale);
}

template <typename T>
__global__ void gather_kernel(GatherArguments a) {
  const std::int64_t number = blockIdx.x;
  const std::int64_t row = a.rows == nullptr ? number : a.rows[number];
  const T* from = static_cast<const T*>(a.x) + row * a.row_stride;
  const std::int64_t count = a.head_count * a.width;
  float* to = a.y + number * count;
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) {
    const std::int64_t head = i / a.width;
    const std::int64_t chosen = a.heads == nullptr ? head : a.heads[head];
    to[i] = to_float(from[chosen * a.width + i % a.width]);
  }
}

template <typename T>
__global__ void put_back_kernel(const float* x, T* y, std::int64_t n, std::int64_t row_stride) {
  const std::int64_t row = blockIdx.x;
  for (std::int64_t i = threadIdx.x; i < n; i += blockDim.x)
    y[row * row_stride + i] = from_float<T>(x[row * n + i]);
}

template <typename T>
__global__ void take_rows_kernel(TakeRowsArguments a) {
  const std::int64_t number = blockIdx.x;
  const T* from = static_cast<const T*>(a.x) + a.rows[number] * a.row_stride;
  T* to = static_cast<T*>(a.y) + number * a.n;
  for (std::int64_t i = threadIdx.x; i < a.n; i += blockDim.x) to[i] = from[i];
}

template <typename T>
__global__ void put_rows_kernel(PutRowsArguments a) {
  const std::int64_t number = blockIdx.x;
  const T* from = static_cast<const T*>(a.x) + number * a.x_stride;
  T* to = static_cast<T*>(a.y) + a.rows[number] * a.y_stride;
  for (std::int64_t i = threadIdx.x; i < a.n; i += blockDim.x) to[i] = from[i];
}

template <typename From, typename T>
__global__ void convert_kernel(const From* source, T* destination, std::int64_t count,
                               float scale) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step)
    destination[i] = from_float<T>(to_float(source[i]) * scale);
}

template <typename From, typename T>
__global__ void transpose_kernel(TransposeArguments a) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= a.rows * a.columns) return;
  const std::int64_t row = i / a.columns, column = i % a.columns;
  static_cast<T*>(a.destination)[column * a.stride + a.begin + row] =
      from_float<T>(to_float(static_cast<const From*>(a.source)[i]) * a.scale);
}

// Calls run(T{}) with the C++ type of stored weights.
template <typename Run>
void with_stored_type(DType dtype, Run run) {
  if (dtype == DType::f8_e4m3)
    run(__nv_fp8_e4m3{});
  else
    with_type(dtype, run);
}

}  // namespace

void embed(const EmbedArguments& a, cudaStream_t stream) {
  if (a.count == 0) return;
  with_type(a.dtype, [&](auto type) {
    embed_kernel<decltype(type)><<<static_cast<unsigned>(a.count), kThreads, 0, stream>>>(a);
  });
  check_launch("embed tokens");
}

void gather(const GatherArguments& a, cudaStream_t stream) {
  if (a.row_count == 0) return;
  with_type(a.dtype, [&](auto type) {
    gather_kernel<decltype(type)><<<static_cast<unsigned>(a.row_count), kThreads, 0, stream>>>(a);
  });
  check_launch("gather rows");
}

void put_back(const float* x, void* y, std::int64_t rows, std::int64_t n, std::int64_t row_stride,
              DType dtype, cudaStream_t stream) {
  if (rows == 0) return;
  with_type(dtype, [&](auto type) {
    using T = decltype(type);
    put_back_kernel<T><<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(x, static_cast<T*>(y),
                                                                             n, row_stride);
  });
  check_launch("put edited rows back");
}

void take_rows(const TakeRowsArguments& a, cudaStream_t stream) {
  if (a.count == 0) return;
  with_type(a.dtype, [&](auto type) {
    take_rows_kernel<decltype(type)><<<static_cast<unsigned>(a.count), kThreads, 0, stream>>>(a);
  });
  check_launch("take rows");
}

void put_rows(const PutRowsArguments& a, cudaStream_t stream) {
  if (a.count == 0) return;
  with_type(a.dtype, [&](auto type) {
    put_rows_kernel<decltype(type)><<<static_cast<unsigned>(a.count), kThreads, 0, stream>>>(a);
  });
  check_launch("put rows");
}

void convert(const void* source, DType from, void* destination, DType to, std::int64_t count,
             float scale, cudaStream_t stream) {
  if (count == 0) return;
  constexpr std::int64_t kMostBlocks = 8192;
  const auto blocks =
      static_cast<unsigned>(std::min(kMostBlocks, (count + kThreads - 1) / kThreads));
  with_stored_type(from, [&](auto stored) {
    with_type(to, [&](auto type) {
      using From = decltype(stored);
      using T = decltype(type);
      convert_kernel<From, T><<<blocks, kThreads, 0, stream>>>(
          static_cast<const From*>(source), static_cast<T*>(destination), count, scale);
    });
  });
  check_launch("convert weights");
}

void convert_transposed(const TransposeArguments& a, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((a.rows * a.columns + kThreads - 1) / kThreads);
  if (blocks == 0) return;
  with_stored_type(a.from, [&](auto stored) {
    with_type(a.to, [&](auto type) {
      transpose_kernel<decltype(stored), decltype(type)><<<blocks, kThreads, 0, stream>>>(a);
    });
  });
  check_launch("transpose weights");
}

}  // namespace qkscope::cuda
