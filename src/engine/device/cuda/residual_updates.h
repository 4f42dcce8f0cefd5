// Additions of attention and MLP outputs to the residual stream. The output projection accumulates
// straight into the residual (beta = 1) unless the update is normalised, observed or edited first;
// then it goes through a buffer.
#pragma once

#include <cstdint>
#include <optional>

#include <cuda_runtime.h>

#include "engine/device/backend.h"
#include "engine/device/cuda/memory/activations.h"
#include "engine/device/cuda/norm.h"
#include "engine/device/cuda/products/products.h"
#include "qkscope/model.h"

namespace qkscope::cuda {

// Destination of an update.
struct UpdateTarget {
  std::int64_t begin = 0;    // its first row among the running rows
  std::int64_t running = 0;  // number of running rows
  DeviceNorm post_norm;      // norm of the update before the addition; (d_model) or none
  Addition addition = Addition::at_once;
};

class ResidualUpdates {
 public:
  ResidualUpdates(const ModelConfig& model, DType dtype, Products& products,
                  Activations& activations, cudaStream_t stream)
      : model_(model),
        dtype_(dtype),
        products_(products),
        activations_(activations),
        stream_(stream) {}

  void begin() { deferred_.reset(); }  // discards the deferred update of an earlier pass

  // Adds the product to the residual rows from target.begin on; product.y is ignored. If the update
  // is observed, it is computed a second time for the observer, so that observing changes no bit.
  void add_product(Product product, const UpdateTarget& target);

  // Same for an update that is already in the activations' buffer and not yet normalised.
  void add_made(std::int64_t count, const UpdateTarget& target);

  // Records that an observer edited the deferred update, so it is added from its buffer.
  void mark_edited();
  // Adds the deferred update. An update that was not edited is added exactly as without an
  // observer.
  void add_deferred(std::int64_t running);

 private:
  struct Deferred {
    Product product;  // product of all rows that computed the update
    bool normalized = false;
    bool edited = false;
  };

  void add_directly(Product product, std::int64_t begin);
  void finish_rows(std::int64_t begin, std::int64_t count, const DeviceNorm& post_norm, bool add);

  const ModelConfig& model_;
  DType dtype_;
  Products& products_;
  Activations& activations_;
  cudaStream_t stream_;
  std::optional<Deferred> deferred_;
};

}  // namespace qkscope::cuda
