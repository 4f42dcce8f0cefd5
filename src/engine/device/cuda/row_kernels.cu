#include <algorithm>

#include "engine/device/cuda/elements.cuh"
#include "engine/device/cuda/memory/device_memory.h"
#include "engine/device/cuda/pass_kernels.h"

namespace qkscope::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T>
__global__ void embed_kernel(EmbeddingArguments a) {
  const std::int64_t row = blockIdx.x;
  const T* from = static_cast<const T*>(a.table) + static_cast<std::int64_t>(a.ids[row]) * a.n;
  T* to = static_cast<T*>(a.y) + row * a.n;
  const float scale = round_to_type<T>(a.scale);
  for (std::int64_t i = threadIdx.x; i < a.n; i += blockDim.x) {
    const float token = round_to_type<T>(to_float(from[i]) * scale);
    to[i] = from_float<T>(a.sum_factor > 0.0f ? (to_float(to[i]) + token) * a.sum_factor : token);
  }
}

template <typename T>
__global__ void gather_floats_kernel(GatherFloatsArguments a) {
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
__global__ void write_float_rows_kernel(const float* x, T* y, std::int64_t n, std::int64_t stride) {
  const std::int64_t row = blockIdx.x;
  for (std::int64_t i = threadIdx.x; i < n; i += blockDim.x)
    y[row * stride + i] = from_float<T>(x[row * n + i]);
}

template <typename T, int V>
__global__ void copy_rows_kernel(CopyRowsArguments a) {
  const std::int64_t number = blockIdx.x;
  const std::int64_t source = a.x_rows == nullptr ? number : a.x_rows[number];
  const std::int64_t target = a.y_rows == nullptr ? number : a.y_rows[number];
  const T* from = static_cast<const T*>(a.x) + source / a.k * a.x_stride;
  T* to = static_cast<T*>(a.y) + target * a.y_stride;
  for (std::int64_t i = threadIdx.x * V; i < a.n; i += blockDim.x * V) {
    auto values = *reinterpret_cast<const Pack<T, V>*>(from + i);
    if (a.factors != nullptr)
      for (T& value : values.values) value = from_float<T>(to_float(value) * a.factors[source]);
    *reinterpret_cast<Pack<T, V>*>(to + i) = values;
  }
}

template <typename From, typename T>
__global__ void convert_elements_kernel(const From* source, T* destination, std::int64_t count,
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

__global__ void find_difference_kernel(const std::uint32_t* a, const std::uint32_t* b,
                                       std::int64_t count, int* differs) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step)
    if (a[i] != b[i]) *differs = 1;  // a benign race: every writer stores the same value
}

// Calls run(From{}, T{}) with the types before and after a conversion; From may also be f8_e4m3.
template <typename Run>
void dispatch_conversion(DType from, DType to, Run run) {
  dispatch_element_type(to, [&](auto type) {
    if (from == DType::f8_e4m3)
      run(__nv_fp8_e4m3{}, type);
    else
      dispatch_element_type(from, [&](auto stored) { run(stored, type); });
  });
}

}  // namespace

void embed(const EmbeddingArguments& a, cudaStream_t stream) {
  launch_for_dtype(a.dtype, a.count, "embed tokens", [&](auto type, unsigned blocks) {
    embed_kernel<decltype(type)><<<blocks, kThreads, 0, stream>>>(a);
  });
}

void gather_floats(const GatherFloatsArguments& a, cudaStream_t stream) {
  launch_for_dtype(a.dtype, a.row_count, "gather rows", [&](auto type, unsigned blocks) {
    gather_floats_kernel<decltype(type)><<<blocks, kThreads, 0, stream>>>(a);
  });
}

void write_float_rows(const float* x, void* y, std::int64_t rows, std::int64_t n,
                      std::int64_t row_stride, DType dtype, cudaStream_t stream) {
  launch_for_dtype(dtype, rows, "put edited rows back", [&](auto type, unsigned blocks) {
    write_float_rows_kernel<<<blocks, kThreads, 0, stream>>>(x, static_cast<decltype(type)*>(y), n,
                                                             row_stride);
  });
}

void copy_rows(const CopyRowsArguments& a, cudaStream_t stream) {
  launch_for_dtype(a.dtype, a.count, "copy rows", [&](auto type, unsigned blocks) {
    using T = decltype(type);
    const bool aligned = is_16_byte_aligned(a.x) && is_16_byte_aligned(a.y) &&
                         (a.x_stride | a.y_stride | a.n) % kPack<T> == 0;
    dispatch_pack_size<T>(
        aligned, [&]<int V>() { copy_rows_kernel<T, V><<<blocks, kThreads, 0, stream>>>(a); });
  });
}

void convert_elements(const void* source, DType from, void* destination, DType to,
                      std::int64_t count, float scale, cudaStream_t stream) {
  if (count == 0) return;
  constexpr std::int64_t kMostBlocks = 8192;
  const auto blocks =
      static_cast<unsigned>(std::min(kMostBlocks, (count + kThreads - 1) / kThreads));
  dispatch_conversion(from, to, [&]<typename From, typename T>(From, T) {
    convert_elements_kernel<From, T><<<blocks, kThreads, 0, stream>>>(
        static_cast<const From*>(source), static_cast<T*>(destination), count, scale);
  });
  check_launch("convert weights");
}

void convert_and_transpose(const TransposeArguments& a, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((a.rows * a.columns + kThreads - 1) / kThreads);
  if (blocks == 0) return;
  dispatch_conversion(a.from, a.to, [&]<typename From, typename T>(From, T) {
    transpose_kernel<From, T><<<blocks, kThreads, 0, stream>>>(a);
  });
  check_launch("transpose weights");
}

bool are_bytes_equal(const void* a, const void* b, std::int64_t bytes, cudaStream_t stream) {
  DeviceMemory flag;
  auto* differs = static_cast<int*>(flag.reserve(sizeof(int), "a comparison"));
  check(cudaMemsetAsync(differs, 0, sizeof(int), stream), "clear a flag");
  find_difference_kernel<<<1024, 256, 0, stream>>>(static_cast<const std::uint32_t*>(a),
                                                   static_cast<const std::uint32_t*>(b), bytes / 4,
                                                   differs);
  check_launch("compare values");
  int found = 0;
  check(cudaMemcpyAsync(&found, differs, sizeof found, cudaMemcpyDeviceToHost, stream),
        "read a comparison");
  check(cudaStreamSynchronize(stream), "compare values");
  return found == 0;
}

bool has_code_for_gpu() {
  cudaFuncAttributes attributes{};
  const auto status = cudaFuncGetAttributes(&attributes, find_difference_kernel);
  if (status == cudaErrorNoKernelImageForDevice || status == cudaErrorInvalidDeviceFunction ||
      status == cudaErrorUnsupportedPtxVersion) {
    cudaGetLastError();  // clears the error: a failed launch is the answer here
    return false;
  }
  check(status, "look for the kernels of the GPU");
  return true;
}

}  // namespace qkscope::cuda
