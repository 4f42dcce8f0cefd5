#include "capture/capture_observer.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "core/thread_pool.h"

namespace qkscope {

CaptureObserver::CaptureObserver(const CapturePlan& plan, const Batch& batch,
                                 const std::vector<CapturedExample>& examples,
                                 SegmentWriter& segment)
    : plan_(plan),
      batch_(batch),
      examples_(examples),
      segment_(segment),
      samples_(plan.points.size()) {
  QKSCOPE_ASSERT(batch.segments.size() == examples.size());
  parallel_for(static_cast<std::int64_t>(samples_.size()), [&](std::int64_t i) {
    const auto group = static_cast<std::size_t>(i);
    samples_[group] = sample(group);
  });
}

CaptureObserver::Sample CaptureObserver::sample(std::size_t group) const {
  const auto& head_group = plan_.manifest.groups[group];
  const PositionSampler sampler(plan_.manifest.sampler);
  Sample sample;
  sample.heads = {head_group.heads.begin(), head_group.heads.end()};
  for (std::size_t sequence = 0; sequence < examples_.size(); ++sequence) {
    const auto seed = sampling_seed(examples_[sequence].key, head_group.layer,
                                    static_cast<char>(head_group.kind));
    const auto& segment = batch_.segments[sequence];
    sample.positions.push_back(sampler.sample(seed, segment.length));
    for (const auto position : sample.positions.back())
      sample.rows.push_back(segment.begin + position);
  }
  return sample;
}

std::size_t CaptureObserver::group_of(HookPoint point) const {
  const auto found = std::find(plan_.points.begin(), plan_.points.end(), point);
  return static_cast<std::size_t>(found - plan_.points.begin());
}

bool CaptureObserver::wants(HookPoint point) const {
  const auto group = group_of(point);
  return group < samples_.size() && !samples_[group].rows.empty();
}

Choice CaptureObserver::choice(HookPoint point) const {
  const auto& sample = samples_[group_of(point)];
  return {.rows = sample.rows, .heads = sample.heads};
}

void CaptureObserver::see(HookPoint point, ConstTensorView activation) {
  const auto start = std::chrono::steady_clock::now();
  const auto group = group_of(point);
  std::int64_t begin = 0;
  for (std::size_t sequence = 0; sequence < examples_.size(); ++sequence) {
    const auto count = static_cast<std::int64_t>(samples_[group].positions[sequence].size());
    if (count > 0) keep(group, sequence, activation.rows(begin, begin + count));
    begin += count;
  }
  seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void CaptureObserver::keep(std::size_t group, std::size_t sequence, ConstTensorView vectors) {
  const auto& example = examples_[sequence];
  const auto& positions = samples_[group].positions[sequence];
  std::vector<std::string> strings;
  if (plan_.manifest.token_strings)
    for (const auto position : positions)
      strings.push_back(example.token_strings[static_cast<std::size_t>(position)]);
  segment_.add_block(example.number, group, positions, strings);

  const auto width = vectors.dim(2);
  vectors_.resize(positions.size() * static_cast<std::size_t>(width));
  for (std::int64_t head = 0; head < vectors.dim(1); ++head) {
    for (std::int64_t row = 0; row < vectors.dim(0); ++row)
      std::memcpy(vectors_.data() + row * width,
                  vectors.data<float>() + row * vectors.stride(0) + head * width,
                  static_cast<std::size_t>(width) * sizeof(float));
    segment_.add_vectors(vectors_);
  }
  rows_ += vectors.dim(0) * vectors.dim(1);
}

}  // namespace qkscope
