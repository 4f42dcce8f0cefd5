// Matrix products on the GPU: cuBLASLt, whose fastest algorithm for each shape is found by timing,
// and on Hopper a gate/up product with SwiGLU in the epilogue.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include <cublasLt.h>
#include <cuda_runtime.h>

#include "engine/device/cuda/hopper_kernels.h"
#include "engine/device/cuda/memory/device_memory.h"
#include "qkscope/model.h"

namespace qkscope::cuda {

struct DeviceLinear {
  const void* weight = nullptr;  // (out, in) dense
  const void* bias = nullptr;    // (out) or null
  std::int64_t out = 0;
  std::int64_t in = 0;
};

// Linear layer: y = factor x Wᵀ + bias, or y += factor x Wᵀ + bias; the sum is rounded once.
struct MatrixProduct {
  const void* x = nullptr;  // (rows, in) dense
  DeviceLinear linear;
  void* y = nullptr;  // (rows, out)
  std::int64_t rows = 0;
  std::int64_t y_stride = 0;  // elements from one row of y to the next; 0: out
  float factor = 1.0f;
  bool accumulate = false;
};

class MatrixMultiplier {
 public:
  MatrixMultiplier(DType dtype, cudaStream_t stream);
  ~MatrixMultiplier();
  MatrixMultiplier(const MatrixMultiplier&) = delete;
  MatrixMultiplier& operator=(const MatrixMultiplier&) = delete;

  void multiply(const MatrixProduct& product);
  void* workspace() const { return workspace_.data(); }  // at least kGroupWorkspace bytes

  // Returns the sustained FLOP/s: multiplies square random matrices (up to 8192, less if memory is
  // short) for about `seconds` seconds, so that the GPU settles at its power limit.
  double measure_flop_rate(double seconds);

 private:
  struct Plan;  // cuBLASLt descriptors of one shape and its algorithm
  using Algorithm = cublasLtMatmulAlgo_t;
  struct GemmSignature {
    std::int64_t rows, in, out, y_stride;
    bool bias, accumulate;
    auto operator<=>(const GemmSignature&) const = default;
  };

  static GemmSignature gemm_signature(const MatrixProduct& product);
  Plan& find_or_make_plan(const MatrixProduct& product);
  Algorithm choose_algorithm(const MatrixProduct& product, const Plan& plan);
  Algorithm find_fastest_algorithm(const MatrixProduct& product);
  std::vector<Algorithm> candidate_algorithms(const Plan& plan);
  bool is_supported(const Plan& plan, const Algorithm& algorithm) const;
  void run_plan(const Plan& plan, const MatrixProduct& product);
  double measure_min_run_seconds(const Plan& plan, const MatrixProduct& product);

  DType dtype_;
  cudaStream_t stream_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<GemmSignature, std::unique_ptr<Plan>> plans_;
  std::map<GemmSignature, Algorithm> fastest_;  // rows rounded down to a power of two
  DeviceMemory workspace_;
};

// Returns whether gated_kernel.cu supports this GPU, model and type. If so, the rows of gate and up
// must be interleaved on the GPU (interleave_gate_up).
bool supports_gated_gemm(const ModelConfig& model, DType dtype, int device);
// Same as supports_gated_gemm() for the experts; if true, all expert matrices must be interleaved.
bool supports_grouped_gemm(const ModelConfig& model, DType dtype, int device);
void run_gated_gemm(GatedGemmArguments arguments, cudaStream_t stream);

}  // namespace qkscope::cuda
