// Mixture of experts on the GPU: rows are grouped by expert, each expert's products run on its
// group, and the outputs are combined row by row.
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

  // Computes router logits of x (rows, d_model) and selects the top-k experts.
  void project_router(const void* x, std::int64_t rows, const DeviceLinear& router);
  void choose(std::int64_t rows);

  // Computes gate and up of the selected experts for rows [begin, begin + count) of x.
  void project_gate_up(const void* x, std::int64_t begin, std::int64_t count,
                       const DeviceExperts& weights);
  void gate();
  // y (count, d_model): weighted sum of the experts' outputs.
  void project_down(const DeviceExperts& weights, void* y);

  DeviceView view(Buffer buffer, std::int64_t rows) const;

 private:
  // Range of an expert's rows among the grouped rows.
  struct Span {
    std::int64_t begin = 0;
    std::int64_t rows = 0;
  };
  void sort(std::int64_t begin, std::int64_t count);
  void take(const void* from, std::int64_t stride, const std::int32_t* rows, void* to,
            std::int64_t count, std::int64_t n);
  // Multiplies each expert's rows in sorted_ with its matrix (out, in); the results go to made_.
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
  Tensor chosen_;        // (rows, k) expert indices on the host
  std::int64_t rows_ = 0;

  std::int64_t begin_ = 0;   // first row of the chunk
  std::int64_t count_ = 0;   // rows of the chunk
  std::int64_t padded_ = 0;  // grouped rows, padding included
  std::vector<Span> spans_;  // (experts)
  UploadBuffer
      numbers_;  // int32: row and slot of each grouped row, then the grouped row of each slot
  DeviceBlock sorted_;  // (padded, d_model or d_mlp) inputs of the products
  DeviceBlock made_;    // (padded, 2 d_mlp or d_model) outputs of the products
  DeviceBlock gate_;    // (slots, d_mlp)
  DeviceBlock up_;      // (slots, d_mlp)
};

}  // namespace qkscope::cuda
