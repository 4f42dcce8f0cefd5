// How what attention and MLP compute reaches the residual stream. The product adds straight into it
// where nothing comes between; an update that is normalised, shown or edited is first in a buffer
// of its own.
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

// Where an update goes.
struct UpdateTarget {
  std::int64_t begin = 0;    // its first row among those that run
  std::int64_t running = 0;  // rows that run
  DeviceNorm post_norm;      // (d_model) or none: not normalised before it is added
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

  void begin() { deferred_.reset(); }  // drops what an earlier pass left

  // The residual's rows from target.begin on get the product (without y) on top. Where the update
  // itself is shown, it is computed once more for that, so that showing changes no bit.
  void add_product(Product product, const UpdateTarget& target);

  // The same for an update that is in the activations' buffer already, not normalised yet.
  void add_made(std::int64_t count, const UpdateTarget& target);

  // The update that was deferred is no longer what its product gave.
  void mark_edited();
  // One that was not edited is added as if it had not been shown.
  void add_deferred(std::int64_t running);

 private:
  struct Deferred {
    Product product;  // that gave it, of all rows
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
