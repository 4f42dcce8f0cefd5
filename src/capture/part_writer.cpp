#include "capture/part_writer.h"

#include "capture/capture_observer.h"
#include "captures/layout.h"
#include "forward/forward.h"

namespace qkscope {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kSegmentBytes = std::uint64_t{64} << 20;
constexpr std::size_t kSegmentExamples = 64;
constexpr auto kSegmentTime = std::chrono::seconds(2);

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

PartWriter::PartWriter(const CapturePlan& plan, Backend& backend, Journal& journal)
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
  // A card goes on computing while rows are stored; the CPU does one after the other.
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
