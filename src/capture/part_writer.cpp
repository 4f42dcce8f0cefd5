#include "capture/part_writer.h"

#include "capture/capture_observer.h"
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

PartWriter::PartWriter(const CapturePlan& plan, const Model& model, Journal& journal)
    : plan_(plan), model_(model), journal_(journal) {
  done_.examples = journal.examples();
  done_.rows = journal.rows();
  done_.tokens = journal.tokens();
}

void PartWriter::capture(const std::vector<Example>& examples, const ExampleSource& source) {
  if (!segment_) {
    open_ = {.segment = journal_.next_segment()};
    segment_.emplace(journal_.segment_path(open_.segment), plan_.manifest.groups.size());
    opened_ = Clock::now();
  }
  Batch batch;
  std::vector<CapturedExample> captured;
  for (const auto& example : examples) {
    const auto number = segment_->add_example(example.record);
    if (example.ids.empty()) continue;  // a text without a token has no rows
    batch.add(example.ids);
    captured.push_back({.number = number, .key = example.record.key, .token_strings = {}});
    if (plan_.manifest.token_strings)
      captured.back().token_strings = source.token_strings(example.ids);
  }
  if (!captured.empty()) {
    CaptureObserver observer(plan_, batch, captured, *segment_);
    const auto start = Clock::now();
    forward(model_, batch, observer);
    forward_seconds_ += seconds_since(start) - observer.seconds();
    open_.rows += observer.rows();
    done_.rows += observer.rows();
  }
  open_.examples += static_cast<std::int64_t>(examples.size());
  done_.examples += static_cast<std::int64_t>(examples.size());
  open_.tokens += batch.rows();
  done_.tokens += batch.rows();
  flush_when_due();
}

void PartWriter::flush_when_due() {
  if (segment_->bytes() >= kSegmentBytes || segment_->examples() >= kSegmentExamples ||
      Clock::now() - opened_ >= kSegmentTime)
    flush();
}

void PartWriter::flush() {
  if (!segment_) return;
  segment_->commit();
  segment_.reset();
  journal_.add(open_);
}

}  // namespace qkscope
