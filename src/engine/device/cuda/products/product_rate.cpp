#include "engine/device/cuda/products/product_rate.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "base/core/clock.h"
#include "base/core/error.h"
#include "engine/device/cuda/cuda_error.h"
#include "engine/device/cuda/memory/device_memory.h"

namespace qkscope::cuda {
namespace {

constexpr std::int64_t kLargest = 8192;
constexpr std::int64_t kSmallest = 512;
constexpr int kProductsPerLook = 8;  // products between two readings of the clock

// Random values of either sign in [0.5, 1): constant operands draw less power than real data and
// would overstate the sustained rate.
std::vector<std::uint32_t> random_values(DType dtype, std::size_t bytes) {
  std::uint32_t bits = 0x3f000000u;  // bit pattern of 0.5f
  std::uint32_t free_bits = 0x807fffffu;
  if (dtype == DType::bf16) {
    bits = 0x3f003f00u;
    free_bits = 0x807f807fu;
  } else if (dtype == DType::f16) {
    bits = 0x38003800u;
    free_bits = 0x83ff83ffu;
  }
  std::mt19937 generator(0);
  std::vector<std::uint32_t> values(bytes / sizeof(std::uint32_t));
  for (auto& value : values) value = bits | (static_cast<std::uint32_t>(generator()) & free_bits);
  return values;
}

// Largest size for which both operands, the result and the trial products of the algorithm search
// fit into half of the free memory.
std::int64_t size_that_fits(std::int64_t element) {
  std::size_t free = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&free, &total), "ask for free memory");
  auto size = kLargest;
  while (size > kSmallest && 4 * size * size * element > static_cast<std::int64_t>(free / 2))
    size /= 2;
  return size;
}

}  // namespace

double product_rate(Products& products, DType dtype, double seconds, cudaStream_t stream) {
  const auto element = static_cast<std::int64_t>(dtype_size(dtype));
  const auto n = size_that_fits(element);
  const auto bytes = static_cast<std::size_t>(n * n * element);
  const auto values = random_values(dtype, bytes);
  DeviceBlock x;
  DeviceBlock weight;
  DeviceBlock y;
  for (auto* side : {&x, &weight})
    check(cudaMemcpy(side->reserve(n * n * element, "products to measure"), values.data(), bytes,
                     cudaMemcpyHostToDevice),
          "copy values");
  y.reserve(n * n * element, "products to measure");
  const Product product{.x = x.data(),
                        .x_stride = n,
                        .weight = weight.data(),
                        .y = y.data(),
                        .y_stride = n,
                        .rows = n,
                        .in = n,
                        .out = n};
  products.multiply(product);  // triggers the algorithm search
  check(cudaStreamSynchronize(stream), "multiply matrices");
  const auto start = Clock::now();
  std::int64_t count = 0;
  while (seconds_since(start) < seconds) {
    for (int i = 0; i < kProductsPerLook; ++i, ++count) products.multiply(product);
    check(cudaStreamSynchronize(stream), "multiply matrices");
  }
  const auto size = static_cast<double>(n);
  return 2.0 * size * size * size * static_cast<double>(count) / seconds_since(start);
}

}  // namespace qkscope::cuda
