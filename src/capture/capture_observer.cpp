#include "capture/capture_observer.h"

#include <algorithm>
#include <chrono>

#include "core/error.h"

namespace qkscope {

CaptureObserver::CaptureObserver(const CapturePlan& plan, const PreparedBatch& prepared,
                                 SegmentWriter& segment, std::size_t first)
    : plan_(plan), prepared_(prepared), segment_(segment), first_(first) {
  QKSCOPE_ASSERT(prepared.samples.size() == plan.points.size());
}

std::size_t CaptureObserver::group_of(HookPoint point) const {
  const auto found = std::find(plan_.points.begin(), plan_.points.end(), point);
  return static_cast<std::size_t>(found - plan_.points.begin());
}

bool CaptureObserver::wants(HookPoint point) const {
  const auto group = group_of(point);
  return group < prepared_.samples.size() && !prepared_.samples[group].rows.empty();
}

Selection CaptureObserver::selection(HookPoint point) const {
  const auto group = group_of(point);
  return {.rows = prepared_.samples[group].rows, .heads = plan_.manifest.groups[group].heads};
}

void CaptureObserver::see(HookPoint point, ConstTensorView activation) {
  const auto start = std::chrono::steady_clock::now();
  const auto group = group_of(point);
  const auto& sample = prepared_.samples[group];
  std::size_t begin = 0;
  for (std::size_t sequence = 0; sequence < sample.ends.size(); ++sequence) {
    const auto end = sample.ends[sequence];
    if (end == begin) continue;
    const auto example = prepared_.sequence[sequence];
    const auto positions = std::span(sample.positions).subspan(begin, end - begin);
    pick_strings(prepared_.examples[example], positions);
    segment_.add_block(
        first_ + example, group, positions, strings_,
        activation.rows(static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end)));
    begin = end;
  }
  rows_ += activation.dim(0) * activation.dim(1);
  seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void CaptureObserver::pick_strings(const Example& example,
                                   std::span<const std::int32_t> positions) {
  strings_.clear();
  if (!plan_.manifest.token_strings) return;
  for (const auto position : positions)
    strings_.push_back(example.token_strings[static_cast<std::size_t>(position)]);
}

}  // namespace qkscope
