#include "capture/capture_observer.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace qkscope {

CaptureObserver::CaptureObserver(const CapturePlan& plan, const Batch& batch,
                                 const std::vector<CapturedExample>& examples,
                                 SegmentWriter& segment)
    : plan_(plan),
      batch_(batch),
      examples_(examples),
      segment_(segment),
      sampler_(plan.manifest.sampler) {
  QKSCOPE_ASSERT(batch.segments.size() == examples.size());
}

std::size_t CaptureObserver::group_of(HookPoint point) const {
  const auto found = std::find(plan_.points.begin(), plan_.points.end(), point);
  return static_cast<std::size_t>(found - plan_.points.begin());
}

bool CaptureObserver::wants(HookPoint point) const {
  return group_of(point) < plan_.points.size();
}

void CaptureObserver::see(HookPoint point, ConstTensorView activation) {
  const auto start = std::chrono::steady_clock::now();
  const auto group = group_of(point);
  for (std::size_t sequence = 0; sequence < examples_.size(); ++sequence)
    keep(group, sequence, activation);
  seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void CaptureObserver::keep(std::size_t group, std::size_t sequence, ConstTensorView activation) {
  const auto& example = examples_[sequence];
  const auto& heads = plan_.manifest.groups[group].heads;
  const auto layer = plan_.manifest.groups[group].layer;
  const auto kind = static_cast<char>(plan_.manifest.groups[group].kind);
  const auto [begin, length] = batch_.segments[sequence];
  const auto positions = sampler_.sample(sampling_seed(example.key, layer, kind), length);
  if (positions.empty()) return;
  std::vector<std::string> strings;
  if (plan_.manifest.token_strings)
    for (const auto position : positions)
      strings.push_back(example.token_strings[static_cast<std::size_t>(position)]);
  segment_.add_block(example.number, group, positions, strings);

  const auto width = static_cast<std::size_t>(plan_.manifest.head_dim);
  vectors_.resize(positions.size() * width);
  for (const auto head : heads) {
    float* out = vectors_.data();
    for (const auto position : positions) {
      const auto* row = activation.data<float>() + (begin + position) * activation.stride(0) +
                        head * activation.stride(1);
      std::memcpy(out, row, width * sizeof(float));
      out += width;
    }
    segment_.add_vectors(vectors_);
  }
  rows_ += static_cast<std::int64_t>(positions.size() * heads.size());
}

}  // namespace qkscope
