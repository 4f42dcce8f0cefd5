// A mixture of experts on the GPU: rows are copied next to those of the same expert, each expert's
// products run on its rows, and what comes out is added up row by row.
#pragma once

#include <cstdint>
#include <vector>

#include <cuda_runtime.h>

#include "engine/device/backend.h"
#include "engine/device/cuda/memory/activation_copies.h"
#include "engine/device/cuda/memory/device_memory.h"
#include "engine/device/cuda/memory/device_weights.h"
#include "engine/device/cuda/products/products.h"
#include "engine/ops/experts.h"
#include "qkscope/model.h"

namespace qkscope::cuda {

class ExpertMixture {
 public:
  ExpertMixture(const ModelConfig& model, DType dtype, Products& products, ActivationCopies& copies,
                cudaStream_t stream)
      : model_(model), dtype_(dtype), products_(products), copies_(copies), stream_(stream) {}

  // x (rows, d_model): router logits, and the choice that follows from them.
  void project_router(const void* x, std::int64_t rows, const DeviceLinear& router);
  void choose(std::int64_t rows);

  // The rows [begin, begin + count) of x: gate and up of their experts.
  void project_gate_up(const void* x, std::int64_t begin, std::int64_t count,
                       const DeviceExperts& weights);
  void gate();
  // y (count, d_model)
  void project_down(const DeviceExperts& weights, void* y);

  DeviceView view(Buffer buffer, std::int64_t rows) const;

 private:
  // Where the rows of an expert lie among the sorted ones.
  struct Span {
    std::int64_t begin = 0;
    std::int64_t rows = 0;
  };
  void sort(std::int64_t begin, std::int64_t count);
  void take(const void* from, std::int64_t stride, const std::int32_t* rows, void* to,
            std::int64_t count, std::int64_t n);
  // Each expert's matrix (out, in) on its rows, from sorted_ to made_.
  void multiply(const DeviceExperts& weights, std::int64_t in, std::int64_t out);
  std::int64_t slots() const { return count_ * model_.experts.per_token; }
  void* at(const DeviceBlock& block, std::int64_t element) const;

  const ModelConfig& model_;
  DType dtype_;
  Products& products_;
  ActivationCopies& copies_;
  cudaStream_t stream_;

  DeviceBlock logits_;   // (rows, experts)
  DeviceBlock weights_;  // (rows, k) float32
  DeviceBlock indices_;  // (rows, k) float32
  Tensor chosen_;        // (rows, k) the indices on the host
  std::int64_t rows_ = 0;

  std::int64_t begin_ = 0;   // of the chunk
  std::int64_t count_ = 0;   // rows of it
  std::int64_t padded_ = 0;  // sorted rows, with those that fill up each expert's
  std::vector<Span> spans_;  // (experts)
  DeviceBlock numbers_;      // int32: row and slot of each sorted row, then the place of each slot
  DeviceBlock sorted_;       // (padded, d_model or d_mlp) what is multiplied
  DeviceBlock made_;         // (padded, 2 d_mlp or d_model) what comes out
  DeviceBlock gate_;         // (slots, d_mlp)
  DeviceBlock up_;           // (slots, d_mlp)
};

}  // namespace qkscope::cuda
