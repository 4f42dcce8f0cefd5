#include "capture/run/capture_observer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>

#include <fmt/format.h>

#include "base/core/clock.h"
#include "base/core/dtype.h"
#include "base/core/error.h"
#include "base/core/text.h"
#include "engine/forward/forward.h"
#include "engine/forward/hooks.h"

namespace qkscope {
namespace {

// NaN and infinity have the largest exponent, so one maximum over the bits checks the vector.
bool all_finite(std::span<const float> vector) {
  std::uint32_t largest = 0;
  for (const float number : vector)
    largest = std::max(largest, std::bit_cast<std::uint32_t>(number) & 0x7FFFFFFFU);
  return largest < 0x7F800000U;
}

// The vector of one row and head, shape (head_dim).
std::span<const float> vector_at(ConstTensorView vectors, std::int64_t row, std::int64_t head) {
  return {vectors.data<float>() + row * vectors.stride(0) + head * vectors.stride(1),
          static_cast<std::size_t>(vectors.dim(2))};
}

class CaptureObserver : public Observer {
 public:
  CaptureObserver(const RunPlan& plan, const PreparedBatch& prepared, RowSink& sink)
      : plan_(plan), prepared_(prepared), sink_(sink) {
    QKSCOPE_ASSERT(prepared.samples.size() == plan.points.size());
  }

  bool wants(HookPoint point) const override {
    const auto group = group_of(point);
    return group < prepared_.samples.size() && !prepared_.samples[group].rows.empty();
  }

  Selection selection(HookPoint point) const override {
    const auto group = group_of(point);
    return {.rows = prepared_.samples[group].rows, .heads = plan_.manifest.groups[group].heads};
  }

  // activation: shape (sampled rows, selected heads, head_dim)
  void see(HookPoint point, ConstTensorView activation) override {
    const auto start = Clock::now();
    const auto group = group_of(point);
    const auto& sample = prepared_.samples[group];
    std::size_t begin = 0;
    for (std::size_t sequence = 0; sequence < sample.ends.size(); ++sequence) {
      const auto end = sample.ends[sequence];
      if (end == begin) continue;
      const auto example = prepared_.sequence[sequence];
      const auto positions = std::span(sample.positions).subspan(begin, end - begin);
      const auto vectors =
          activation.rows(static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end));
      check_finite(group, prepared_.examples[example].record, positions, vectors);
      sink_.add({example, group, begin, end}, vectors);
      begin = end;
    }
    rows_ += activation.dim(0) * activation.dim(1);
    seconds_ += seconds_since(start);
  }

  std::int64_t rows() const { return rows_; }              // over all heads
  std::int64_t non_finite() const { return non_finite_; }  // rows with NaN or infinity
  double seconds() const { return seconds_; }              // spent in see()

 private:
  // Returns the number of groups if the point is not captured.
  std::size_t group_of(HookPoint point) const {
    const auto found = std::find(plan_.points.begin(), plan_.points.end(), point);
    return static_cast<std::size_t>(found - plan_.points.begin());
  }

  // vectors: shape (positions, selected heads, head_dim)
  void check_finite(std::size_t group, const ExampleRecord& example,
                    std::span<const std::int32_t> positions, ConstTensorView vectors) {
    for (std::int64_t row = 0; row < vectors.dim(0); ++row)
      for (std::int64_t head = 0; head < vectors.dim(1); ++head) {
        const auto vector = vector_at(vectors, row, head);
        if (all_finite(vector)) continue;
        ++non_finite_;
        if (!plan_.config.capture.keep_non_finite)
          refuse_non_finite(group, static_cast<std::size_t>(head), example,
                            positions[static_cast<std::size_t>(row)], vector);
      }
  }

  [[noreturn]] void refuse_non_finite(std::size_t group, std::size_t head,
                                      const ExampleRecord& example, std::int32_t position,
                                      std::span<const float> vector) const {
    const auto& heads = plan_.manifest.groups[group];
    const auto dtype = plan_.backend.dtype;
    const auto range = dtype == DType::f32
                           ? ""
                           : fmt::format(", or numbers left the range of {} (try --dtype float32)",
                                         dtype_name(dtype));
    const auto found =
        std::find_if_not(vector.begin(), vector.end(), [](float x) { return std::isfinite(x); });
    bad_input(
        "layer {}, {} head {}, text {} (row {} of the dataset), position {}: the vector holds {}; "
        "the weights or settings of the model are broken{}; --non-finite keep stores such rows and "
        "counts them",
        heads.layer, heads.kind == HeadKind::query ? "query" : "key", heads.heads[head],
        in_quotes(example.source_id), example.row, position, *found, range);
  }

  const RunPlan& plan_;
  const PreparedBatch& prepared_;
  RowSink& sink_;
  std::int64_t rows_ = 0;
  std::int64_t non_finite_ = 0;
  double seconds_ = 0.0;
};

}  // namespace

void HeldRows::add(const SampledRows& rows, ConstTensorView vectors) {
  Tensor copy(vectors.shape());
  auto* to = copy.data<float>();
  for (std::int64_t row = 0; row < vectors.dim(0); ++row)
    for (std::int64_t head = 0; head < vectors.dim(1); ++head) {
      const auto vector = vector_at(vectors, row, head);
      to = std::copy(vector.begin(), vector.end(), to);
    }
  blocks_.push_back({rows, std::move(copy)});
}

void HeldRows::hand_to(RowSink& sink) const {
  for (const auto& block : blocks_) sink.add(block.rows, block.vectors);
}

CapturedCount capture_batch(const RunPlan& plan, Backend& backend, const PreparedBatch& prepared,
                            RowSink& sink, LayerStatistics* statistics) {
  if (prepared.sequence.empty()) return {};
  CaptureObserver observer(plan, prepared, sink);
  const auto start = Clock::now();
  if (statistics == nullptr)
    forward(backend, prepared.batch, observer);
  else
    forward(backend, prepared.batch, observer, *statistics);
  auto seconds = seconds_since(start);
  // A GPU computes while rows are stored; on the CPU storing rows delays the forward pass.
  if (plan.backend.device.kind == Device::Kind::cpu) seconds -= observer.seconds();
  return {observer.rows(), observer.non_finite(), seconds};
}

}  // namespace qkscope
