// Copies of activations for observers. To the host: gathered in stream order, copied while the next
// layers run, shown when they have arrived. On the GPU: complete when the call returns.
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

// An activation on the GPU: (rows, heads, width) with dense heads.
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

  // Copies the chosen rows and heads (empty: all) to the host as float32 and hands them to `show`,
  // now or later, in the order of the calls. Rows count from the view's first.
  void copy_to_host(const DeviceView& view, std::span<const std::int32_t> rows,
                    std::span<const std::int32_t> heads, Show show);
  void show_arrived();
  void show_all();
  void drop_all();  // waits for the copies and shows nothing

  // The same rows and heads in new memory on the GPU, once the stream is there; `shape` gets
  // theirs.
  std::shared_ptr<void> copy_on_device(const DeviceView& view, std::span<const std::int32_t> rows,
                                       std::span<const std::int32_t> heads, Shape& shape);
  // The activation gets these values, float32 on the GPU. False: it had them already.
  bool put(const float* values, const DeviceView& view);

  // A whole activation, on the host when this returns, and the way back.
  Tensor fetch(const DeviceView& view);
  void put(const Tensor& values, const DeviceView& view);

 private:
  // int32: rows, then heads. Kernels read them many times, so they go to the GPU first.
  struct Indices {
    PinnedBlock host;
    DeviceBlock device;
  };
  // A copy to the host that is under way, or whose memory waits for the next.
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
  // Rows [begin, begin + count) as float32, in piece_.
  const float* gather_piece(const DeviceView& view, std::int64_t begin, std::int64_t count);
  bool has_values(const float* values, const DeviceView& view);
  void show_first();
  std::int64_t pending_bytes() const;

  cudaStream_t compute_;
  Stream copies_;
  std::deque<std::unique_ptr<HostCopy>> pending_;  // in the order of the calls
  std::vector<std::unique_ptr<HostCopy>> idle_;
  Indices indices_;         // of copy_on_device
  DeviceBlock piece_;       // of what is fetched or put as a whole
  PinnedBlock host_piece_;  // the same on the host
};

}  // namespace qkscope::cuda
