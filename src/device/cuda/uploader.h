// Weights on their way from the mapped file to the card, through two pinned buffers: one fills
// while the other is on the wire.
#pragma once

#include <cstdint>
#include <span>

#include "core/dtype.h"
#include "device/cuda/device_memory.h"
#include "model/loaded_checkpoint.h"

namespace qkscope::cuda {

class Uploader {
 public:
  // Everything arrives in stream order, in the type `dtype`.
  Uploader(DType dtype, cudaStream_t stream);

  void matrix(const WeightMatrix& matrix, void* destination);      // (out, in)
  void vector(std::span<const float> values, void* destination);   // a bias
  void floats(std::span<const float> values, float* destination);  // a norm, in float32
  void wait();                                                     // until all has arrived

 private:
  struct Buffer {
    PinnedBlock host;
    DeviceBlock device;  // where values of another type wait to be converted
    Event done;
  };

  void copy(ConstTensorView source, void* destination, DType to, float scale);

  DType dtype_;
  cudaStream_t stream_;
  Buffer buffers_[2];
  int next_ = 0;
};

}  // namespace qkscope::cuda
