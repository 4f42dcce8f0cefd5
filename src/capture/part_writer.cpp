#include "capture/part_writer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "captures/layout.h"
#include "captures/segment.h"
#include "core/clock.h"
#include "core/dtype.h"
#include "core/error.h"
#include "core/text.h"
#include "forward/hooks.h"

namespace qkscope {
namespace {

constexpr std::uint64_t kSegmentBytes = std::uint64_t{64} << 20;
constexpr std::size_t kSegmentExamples = 64;
constexpr auto kSegmentTime = std::chrono::seconds(2);

// NaN and infinities have the largest exponent: the largest bits tell for all.
bool all_finite(std::span<const float> vector) {
  std::uint32_t largest = 0;
  for (const float number : vector)
    largest = std::max(largest, std::bit_cast<std::uint32_t>(number) & 0x7FFFFFFFU);
  return largest < 0x7F800000U;
}

float first_non_finite(std::span<const float> vector) {
  return *std::find_if_not(vector.begin(), vector.end(), [](float x) { return std::isfinite(x); });
}

// Takes the sampled rows of the chosen heads out of the forward pass and hands them to a segment.
class CaptureObserver : public Observer {
 public:
  // `first`: the number in the segment of the batch's first example.
  CaptureObserver(const RunPlan& plan, const PreparedBatch& prepared, SegmentWriter& segment,
                  std::size_t first);

  bool wants(HookPoint point) const override;
  Selection selection(HookPoint point) const override;
  // activation: (sampled rows, chosen heads, head_dim)
  void see(HookPoint point, ConstTensorView activation) override;

  std::int64_t rows() const { return rows_; }              // kept so far, over all heads
  std::int64_t non_finite() const { return non_finite_; }  // of those, with NaN or infinity
  double seconds() const { return seconds_; }              // spent in here

 private:
  std::size_t group_of(HookPoint point) const;  // the number of groups where there is none
  void look_for_non_finite(std::size_t group, const Example& example,
                           std::span<const std::int32_t> positions, ConstTensorView vectors);
  [[noreturn]] void refuse_non_finite(std::size_t group, std::size_t head,
                                      const ExampleRecord& example, std::int32_t position,
                                      std::span<const float> vector) const;
  void pick_strings(const Example& example, std::span<const std::int32_t> positions);

  const RunPlan& plan_;
  const PreparedBatch& prepared_;
  SegmentWriter& segment_;
  std::size_t first_;
  std::vector<std::string_view> strings_;  // of one block
  std::int64_t rows_ = 0;
  std::int64_t non_finite_ = 0;
  double seconds_ = 0.0;
};

CaptureObserver::CaptureObserver(const RunPlan& plan, const PreparedBatch& prepared,
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
    look_for_non_finite(group, prepared_.examples[example], positions, vectors);
    pick_strings(prepared_.examples[example], positions);
    segment_.add_block(first_ + example, group, positions, strings_, vectors);
    begin = end;
  }
  rows_ += activation.dim(0) * activation.dim(1);
  seconds_ += seconds_since(start);
}

// vectors: (positions, chosen heads, head_dim)
void CaptureObserver::look_for_non_finite(std::size_t group, const Example& example,
                                          std::span<const std::int32_t> positions,
                                          ConstTensorView vectors) {
  const auto width = static_cast<std::size_t>(vectors.dim(2));
  for (std::int64_t row = 0; row < vectors.dim(0); ++row)
    for (std::int64_t head = 0; head < vectors.dim(1); ++head) {
      const std::span vector(
          vectors.data<float>() + row * vectors.stride(0) + head * vectors.stride(1), width);
      if (all_finite(vector)) continue;
      ++non_finite_;
      if (!plan_.config.capture.keep_non_finite)
        refuse_non_finite(group, static_cast<std::size_t>(head), example.record,
                          positions[static_cast<std::size_t>(row)], vector);
    }
}

void CaptureObserver::refuse_non_finite(std::size_t group, std::size_t head,
                                        const ExampleRecord& example, std::int32_t position,
                                        std::span<const float> vector) const {
  const auto& heads = plan_.manifest.groups[group];
  const auto dtype = plan_.backend.dtype;
  const auto range = dtype == DType::f32
                         ? ""
                         : fmt::format(", or numbers left the range of {} (try --dtype float32)",
                                       dtype_name(dtype));
  bad_input(
      "layer {}, {} head {}, text {} (row {} of the dataset), position {}: the vector holds {}; "
      "the "
      "weights or settings of the model are broken{}; --non-finite keep stores such rows and "
      "counts "
      "them",
      heads.layer, heads.kind == HeadKind::query ? "query" : "key", heads.heads[head],
      in_quotes(example.source_id), example.row, position, first_non_finite(vector), range);
}

void CaptureObserver::pick_strings(const Example& example,
                                   std::span<const std::int32_t> positions) {
  strings_.clear();
  if (!plan_.manifest.token_strings) return;
  for (const auto position : positions)
    strings_.push_back(example.token_strings[static_cast<std::size_t>(position)]);
}

}  // namespace

PartWriter::PartWriter(const RunPlan& plan, Backend& backend, Journal& journal)
    : plan_(plan), backend_(backend), journal_(journal), segments_(journal.entries().size()) {
  done_.examples = journal.examples();
  done_.rows = journal.rows();
  done_.tokens = journal.tokens();
}

void PartWriter::capture(const PreparedBatch& prepared, LayerStatistics* statistics) {
  if (!segment_) open_segment();
  const auto first = segment_->examples();
  for (const auto& example : prepared.examples) segment_->add_example(example.record);
  const auto kept = prepared.sequence.empty() ? Kept{} : run(prepared, first, statistics);
  for (auto* entry : {&open_, &done_}) {
    entry->examples += static_cast<std::int64_t>(prepared.examples.size());
    entry->rows += kept.rows;
    entry->non_finite += kept.non_finite;
    entry->tokens += prepared.tokens();
  }
  if (due()) begin_closing();
}

PartWriter::Kept PartWriter::run(const PreparedBatch& prepared, std::size_t first,
                                 LayerStatistics* statistics) {
  CaptureObserver observer(plan_, prepared, *segment_, first);
  const auto start = Clock::now();
  if (statistics == nullptr)
    forward(backend_, prepared.batch, observer);
  else
    forward(backend_, prepared.batch, observer, *statistics);
  forward_seconds_ += seconds_since(start);
  // A GPU goes on computing while rows are stored; the CPU does one after the other.
  if (plan_.backend.device.kind == Device::Kind::cpu) forward_seconds_ -= observer.seconds();
  return {observer.rows(), observer.non_finite()};
}

void PartWriter::open_segment() {
  open_ = JournalEntry{};
  open_.segment = segment_name(segments_++);
  segment_ = std::make_unique<SegmentWriter>(journal_.segment_path(open_.segment),
                                             plan_.manifest.groups.size());
  opened_ = Clock::now();
}

bool PartWriter::due() const {
  return segment_->bytes() >= kSegmentBytes || segment_->examples() >= kSegmentExamples ||
         Clock::now() - opened_ >= kSegmentTime;
}

void PartWriter::begin_closing() {
  finish_closing();
  closing_ = std::async(std::launch::async, [&journal = journal_, entry = open_,
                                             segment = std::move(segment_)]() mutable {
    entry.checksum = segment->commit();
    journal.add(entry);
  });
}

void PartWriter::finish_closing() {
  if (closing_.valid()) closing_.get();
}

void PartWriter::flush() {
  if (segment_) begin_closing();
  finish_closing();
}

}  // namespace qkscope
