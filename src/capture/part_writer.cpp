#include "capture/part_writer.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <vector>

#include "captures/layout.h"
#include "captures/segment.h"
#include "core/clock.h"
#include "core/error.h"
#include "forward/forward.h"
#include "forward/hooks.h"

namespace qkscope {
namespace {

constexpr std::uint64_t kSegmentBytes = std::uint64_t{64} << 20;
constexpr std::size_t kSegmentExamples = 64;
constexpr auto kSegmentTime = std::chrono::seconds(2);

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

  std::int64_t rows() const { return rows_; }  // kept so far, over all heads
  double seconds() const { return seconds_; }  // spent in here

 private:
  std::size_t group_of(HookPoint point) const;  // the number of groups where there is none
  void pick_strings(const Example& example, std::span<const std::int32_t> positions);

  const RunPlan& plan_;
  const PreparedBatch& prepared_;
  SegmentWriter& segment_;
  std::size_t first_;
  std::vector<std::string_view> strings_;  // of one block
  std::int64_t rows_ = 0;
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
    pick_strings(prepared_.examples[example], positions);
    segment_.add_block(
        first_ + example, group, positions, strings_,
        activation.rows(static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end)));
    begin = end;
  }
  rows_ += activation.dim(0) * activation.dim(1);
  seconds_ += seconds_since(start);
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

void PartWriter::capture(const PreparedBatch& prepared) {
  if (!segment_) open_segment();
  const auto first = segment_->examples();
  for (const auto& example : prepared.examples) segment_->add_example(example.record);
  const auto rows = prepared.sequence.empty() ? 0 : run(prepared, first);
  for (auto* entry : {&open_, &done_}) {
    entry->examples += static_cast<std::int64_t>(prepared.examples.size());
    entry->rows += rows;
    entry->tokens += prepared.tokens();
  }
  if (due()) begin_closing();
}

// Returns the rows kept, over all heads.
std::int64_t PartWriter::run(const PreparedBatch& prepared, std::size_t first) {
  CaptureObserver observer(plan_, prepared, *segment_, first);
  const auto start = Clock::now();
  forward(backend_, prepared.batch, observer);
  forward_seconds_ += seconds_since(start);
  // A GPU goes on computing while rows are stored; the CPU does one after the other.
  if (plan_.backend.device.kind == Device::Kind::cpu) forward_seconds_ -= observer.seconds();
  return observer.rows();
}

void PartWriter::open_segment() {
  open_ = {.segment = segment_name(segments_++)};
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
  closing_ = std::async(std::launch::async,
                        [&journal = journal_, entry = open_, segment = std::move(segment_)] {
                          segment->commit();
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
