// Matrix products with cuBLASLt; the fastest algorithm of each shape is found by timing.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include <cuda_runtime.h>

#include "base/core/dtype.h"
#include "engine/device/cuda/memory/device_memory.h"

namespace qkscope::cuda {

// y = factor x Wᵀ + bias, or y += factor x Wᵀ + bias; the sum is rounded once.
struct Product {
  const void* x = nullptr;  // (rows, in)
  std::int64_t x_stride = 0;
  const void* weight = nullptr;  // (out, in) dense
  const void* bias = nullptr;    // (out) or null
  void* y = nullptr;             // (rows, out)
  std::int64_t y_stride = 0;
  std::int64_t rows = 0;
  std::int64_t in = 0;
  std::int64_t out = 0;
  float factor = 1.0f;
  bool accumulate = false;
};

class Products {
 public:
  Products(DType dtype, cudaStream_t stream);
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  void multiply(const Product& product);

 private:
  struct Library;  // cuBLASLt handle
  struct Call;     // cuBLASLt descriptors of one shape and its algorithm
  struct Algorithm;
  struct Key {
    std::int64_t rows, in, out, x_stride, y_stride;
    bool bias, accumulate;
    auto operator<=>(const Key&) const = default;
  };

  static Key key_of(const Product& product);
  Call& call_for(const Product& product);
  Algorithm algorithm_for(const Product& product, const Call& call);
  Algorithm measured(const Product& product);
  std::vector<Algorithm> candidates(const Call& call);
  bool runs(const Call& call, const Algorithm& algorithm) const;
  void run(const Call& call, const Product& product);

  DType dtype_;
  cudaStream_t stream_;
  std::unique_ptr<Library> library_;
  std::map<Key, std::unique_ptr<Call>> calls_;
  std::map<Key, Algorithm> measured_;  // key: shape with rows rounded down to a power of two
  DeviceBlock workspace_;
};

}  // namespace qkscope::cuda
