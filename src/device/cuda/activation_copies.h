// What someone looks at, on its way to the host: gathered in order with the computing, copied while
// the next layers run, shown when it has arrived.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "device/cuda/device_memory.h"
#include "qkscope/tensor.h"

namespace qkscope::cuda {

// An activation on the card: (rows, heads, width) with dense heads.
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

  // The chosen rows and heads (empty: all), float32. Rows count from the view's first.
  void look(const DeviceView& view, std::span<const std::int32_t> rows,
            std::span<const std::int32_t> heads, Show show);
  // The same into memory of its own on the card; complete when this returns. And the way back of
  // a whole activation.
  std::shared_ptr<void> copy(const DeviceView& view, std::span<const std::int32_t> rows,
                             std::span<const std::int32_t> heads, Shape& shape);
  // False: it holds these values already.
  bool put(const float* values, const DeviceView& view);

  // All of it at once on the host, and the way back.
  Tensor fetch(const DeviceView& view);
  void put(const Tensor& values, const DeviceView& view);

  void show_arrived();
  void show_all();
  void forget();  // waits for copies under way and shows nothing

 private:
  // int32: rows, then heads. Kernels read them many times, so they go to the card first.
  struct Numbers {
    PinnedBlock host;
    DeviceBlock device;
  };
  struct Sight {
    Numbers numbers;
    DeviceBlock gathered;
    PinnedBlock host;
    Event is_gathered;
    Event arrived;
    Shape shape;
    Show show;
  };

  std::unique_ptr<Sight> idle_sight();
  void gather_chosen(const DeviceView& view, std::span<const std::int32_t> rows,
                     std::span<const std::int32_t> heads, Numbers& numbers, float* to);
  // Rows [begin, begin + count) as float32, in piece_.
  const float* gather_piece(const DeviceView& view, std::int64_t begin, std::int64_t count);
  bool holds(const float* values, const DeviceView& view);
  void show_first();
  std::int64_t bytes_under_way() const;

  cudaStream_t compute_;
  Stream copies_;
  std::deque<std::unique_ptr<Sight>> under_way_;
  std::vector<std::unique_ptr<Sight>> idle_;
  Numbers numbers_;         // of what is copied
  DeviceBlock piece_;       // of what is fetched or put as a whole
  PinnedBlock host_piece_;  // the same on the host
};

}  // namespace qkscope::cuda
