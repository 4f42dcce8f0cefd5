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

// An activation on the GPU, shape (rows, heads, width); each row is contiguous.
struct ActivationView {
  void* data = nullptr;
  std::int64_t row_stride = 0;  // elements
  std::int64_t rows = 0;
  std::int64_t heads = 1;
  std::int64_t width = 0;
  bool by_head = false;  // observers see (rows, heads, width), else (rows, heads * width)
  DType dtype = DType::bf16;
};

// Rows and heads of an activation, as indices; an empty list selects all.
struct RowHeadSelection {
  std::vector<std::int32_t> rows;
  std::vector<std::int32_t> heads;
  bool native_type = false;  // whole activations only: not converted to float32
  bool empty() const { return rows.empty() && heads.empty(); }
};

class ActivationCopier {
 public:
  explicit ActivationCopier(cudaStream_t compute_stream);

  // Copies the selected part to the host and passes it to `show` on arrival, in call order.
  void copy_to_host(const ActivationView& view, const RowHeadSelection& selected,
                    std::function<void(ConstTensorView)> show);
  void deliver_copies() { transfers_.deliver_all(); }
  void discard_copies() { transfers_.discard_all(); }  // waits for the copies and discards them

  // Copies the selected part into new GPU memory and waits. `shape` receives the copy's shape.
  std::shared_ptr<void> copy_on_device(const ActivationView& view, const RowHeadSelection& selected,
                                       Shape& shape);
  // Overwrites the activation with float32 values on the GPU; returns false if nothing has changed.
  bool overwrite_activation(const float* values, const ActivationView& view);

  // Copies a whole activation to or from the host; complete on return.
  Tensor fetch_activation(const ActivationView& view, DType dtype = DType::f32);
  void overwrite_activation(ConstTensorView values, const ActivationView& view);

 private:
  void gather_selection(const ActivationView& view, const RowHeadSelection& selected,
                        UploadBuffer& indices, float* to);
  // Gathers rows [begin, begin + count) of an activation as float32 into the buffer piece_.
  const float* gather_row_range(const ActivationView& view, std::int64_t begin, std::int64_t count);
  bool holds_same_floats(const float* values, const ActivationView& view);

  cudaStream_t compute_stream_;
  HostTransfers transfers_;
  UploadBuffer indices_;     // used by copy_on_device
  DeviceMemory piece_;       // staging buffer of whole copies
  PinnedMemory host_piece_;  // pinned staging buffer of whole copies
};

}  // namespace qkscope::cuda
