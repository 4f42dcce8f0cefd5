// Device memory for tests of kernels.
#pragma once

#include <cstring>
#include <span>
#include <stdexcept>
#include <vector>

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include "base/core/convert.h"
#include "qkscope/forward.h"

namespace qkscope {

// A test that is skipped, with the reason, where there is no NVIDIA GPU.
template <typename Base = testing::Test>
class GpuTest : public Base {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << why_no_cuda();
  }
};

inline void require(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}

class DeviceBuffer {
 public:
  explicit DeviceBuffer(std::size_t bytes) : bytes_(bytes) { require(cudaMalloc(&data_, bytes)); }
  template <typename T>
  explicit DeviceBuffer(const std::vector<T>& values) : DeviceBuffer(values.size() * sizeof(T)) {
    require(cudaMemcpy(data_, values.data(), bytes_, cudaMemcpyHostToDevice));
  }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  ~DeviceBuffer() { cudaFree(data_); }

  template <typename T = void>
  T* get() const {
    return static_cast<T*>(data_);
  }
  // All bits set: NaN in every floating type.
  void poison() { require(cudaMemset(data_, 0xff, bytes_)); }
  // Waits for the kernels before.
  template <typename T>
  std::vector<T> download() const {
    std::vector<T> values(bytes_ / sizeof(T));
    require(cudaDeviceSynchronize());
    require(cudaMemcpy(values.data(), data_, bytes_, cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  void* data_ = nullptr;
  std::size_t bytes_;
};

// `values` rounded to bf16 or f16, or as they are (f32), as bytes.
inline std::vector<std::byte> encoded(std::span<const float> values, DType dtype) {
  const auto size = dtype_size(dtype);
  std::vector<std::byte> bytes(values.size() * size);
  const auto put = [&](std::size_t i, const auto& value) {
    std::memcpy(bytes.data() + i * size, &value, size);
  };
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::bf16) put(i, to_bf16(values[i]));
    if (dtype == DType::f16) put(i, to_fp16(values[i]));
    if (dtype == DType::f32) put(i, values[i]);
  }
  return bytes;
}

inline std::vector<float> decoded(std::span<const std::byte> bytes, DType dtype) {
  const auto size = dtype_size(dtype);
  std::vector<float> values(bytes.size() / size);
  const auto at = [&]<typename T>(std::size_t i, T value) {
    std::memcpy(&value, bytes.data() + i * size, size);
    return value;
  };
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::bf16) values[i] = to_float(at(i, Bf16{}));
    if (dtype == DType::f16) values[i] = to_float(at(i, Fp16{}));
    if (dtype == DType::f32) values[i] = at(i, 0.0f);
  }
  return values;
}

}  // namespace qkscope
