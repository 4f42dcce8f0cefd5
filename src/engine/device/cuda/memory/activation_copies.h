// Copies of activations for observers. Copies to the host are gathered in stream order, transferred
// while later layers run, and passed to the observers on arrival. Copies on the GPU are complete
// when the call returns.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "engine/device/cuda/memory/device_memory.h"
#include "qkscope/tensor.h"

namespace qkscope::cuda {

// An activation on the GPU, shape (rows, heads, width); the heads of a row are dense.
struct DeviceView {
  void* data = nullptr;
  std::int64_t row_stride = 0;  // elements
  std::int64_t rows = 0;
  std::int64_t heads = 1;
  std::int64_t width = 0;
  bool by_head = false;  // shown as (rows, heads, width), else as (rows, width)
  DType dtype = DType::bf16;
};

// Rows and heads of an activation, as indices; an empty list selects all.
struct SelectedIndices {
  std::vector<std::int32_t> rows;
  std::vector<std::int32_t> heads;
  bool native_type = false;  // whole activations only: not converted to float32
  bool empty() const { return rows.empty() && heads.empty(); }
};

class ActivationCopier {
 public:
  using HostReader = std::function<void(ConstTensorView)>;

  explicit ActivationCopier(cudaStream_t compute);

  // Copies the selected part to the host and passes it to `show` on arrival, in call order.
  void copy_to_host(const DeviceView& view, const SelectedIndices& selected, HostReader show);
  void deliver_copies() { transfers_.deliver_all(); }
  void discard_all() { transfers_.discard_all(); }  // waits for the copies and discards them

  // Copies the selected part into new GPU memory and waits. `shape` receives the copy's shape.
  std::shared_ptr<void> copy_on_device(const DeviceView& view, const SelectedIndices& selected,
                                       Shape& shape);
  // Overwrites the activation with float32 values on the GPU; false if it already has these values.
  bool put(const float* values, const DeviceView& view);

  // Copies a whole activation to the host (fetch) or from the host (put); complete on return.
  Tensor fetch(const DeviceView& view, DType dtype = DType::f32);
  void put(ConstTensorView values, const DeviceView& view);

 private:
  void gather_selected(const DeviceView& view, const SelectedIndices& selected,
                       UploadBuffer& indices, float* to);
  // Gathers rows [begin, begin + count) of an activation as float32 into the buffer piece_.
  const float* gather_row_range(const DeviceView& view, std::int64_t begin, std::int64_t count);
  bool holds_same_floats(const float* values, const DeviceView& view);

  cudaStream_t compute_;
  HostTransfers transfers_;
  UploadBuffer indices_;     // used by copy_on_device
  DeviceMemory piece_;       // staging buffer of fetch and put
  PinnedMemory host_piece_;  // pinned staging buffer of fetch and put
};

}  // namespace qkscope::cuda
