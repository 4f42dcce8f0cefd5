// Copies of activations for observers. Copies to the host are gathered in stream order, transferred
// while later layers run, and shown on arrival. Copies on the GPU are complete when the call
// returns.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

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

class ActivationCopies {
 public:
  using Show = std::function<void(ConstTensorView)>;

  explicit ActivationCopies(cudaStream_t compute) : compute_(compute) {}

  // Copies the selected rows and heads (empty: all) to the host as float32 and passes them to
  // `show`, immediately or later, in call order. Rows are counted from the first row of the view.
  void copy_to_host(const DeviceView& view, std::span<const std::int32_t> rows,
                    std::span<const std::int32_t> heads, Show show);
  void show_arrived();
  void show_all();
  void drop_all();  // waits for the copies and discards them

  // Copies the same selection into new GPU memory and waits for it. `shape` receives the shape of
  // the copy.
  std::shared_ptr<void> copy_on_device(const DeviceView& view, std::span<const std::int32_t> rows,
                                       std::span<const std::int32_t> heads, Shape& shape);
  // Overwrites the activation with float32 values on the GPU. Returns false if it already held
  // them.
  bool put(const float* values, const DeviceView& view);

  // Copies a whole activation to the host (complete on return), and back.
  Tensor fetch(const DeviceView& view);
  void put(const Tensor& values, const DeviceView& view);

 private:
  // Row indices, then head indices, int32. Kernels read them many times, so they are copied to the
  // GPU first.
  struct Indices {
    PinnedBlock host;
    DeviceBlock device;
  };
  // A copy to the host that is in flight, or an idle buffer for the next copy.
  struct HostCopy {
    Indices indices;
    DeviceBlock gathered;
    PinnedBlock host;
    Event is_gathered;
    Event arrived;
    Shape shape;
    Show show;
  };

  std::unique_ptr<HostCopy> idle_copy();
  void gather_chosen(const DeviceView& view, std::span<const std::int32_t> rows,
                     std::span<const std::int32_t> heads, Indices& indices, float* to);
  // Gathers rows [begin, begin + count) as float32 into piece_.
  const float* gather_piece(const DeviceView& view, std::int64_t begin, std::int64_t count);
  bool has_values(const float* values, const DeviceView& view);
  void show_first();
  std::int64_t pending_bytes() const;

  cudaStream_t compute_;
  Stream copies_;
  std::deque<std::unique_ptr<HostCopy>> pending_;  // in the order of the calls
  std::vector<std::unique_ptr<HostCopy>> idle_;
  Indices indices_;         // used by copy_on_device
  DeviceBlock piece_;       // staging buffer of fetch and put
  PinnedBlock host_piece_;  // its pinned counterpart on the host
};

}  // namespace qkscope::cuda
