#include "capture/run/part_writer.h"

#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "capture/format/layout.h"

namespace qkscope {
namespace {

constexpr std::uint64_t kSegmentBytes = std::uint64_t{64} << 20;
constexpr std::size_t kSegmentExamples = 64;
constexpr auto kSegmentTime = std::chrono::seconds(2);

// Writes rows to a segment.
class SegmentSink : public RowSink {
 public:
  // `first`: number of the batch's first example in the segment.
  SegmentSink(const RunPlan& plan, const PreparedBatch& prepared, SegmentWriter& segment,
              std::size_t first)
      : plan_(plan), prepared_(prepared), segment_(segment), first_(first) {}

  void add(const SampledRows& rows, ConstTensorView vectors) override {
    const auto positions = std::span(prepared_.samples[rows.group].positions)
                               .subspan(rows.begin, rows.end - rows.begin);
    pick_strings(prepared_.examples[rows.example], positions);
    segment_.add_block(first_ + rows.example, rows.group, positions, strings_, vectors);
  }

 private:
  void pick_strings(const Example& example, std::span<const std::int32_t> positions) {
    strings_.clear();
    if (!plan_.manifest.token_strings) return;
    for (const auto position : positions)
      strings_.push_back(example.token_strings[static_cast<std::size_t>(position)]);
  }

  const RunPlan& plan_;
  const PreparedBatch& prepared_;
  SegmentWriter& segment_;
  std::size_t first_;
  std::vector<std::string_view> strings_;  // of one block
};

}  // namespace

PartWriter::PartWriter(const RunPlan& plan, Journal& journal,
                       std::function<void(const JournalEntry&)> stored)
    : plan_(plan),
      journal_(journal),
      stored_(std::move(stored)),
      segments_(journal.entries().size()) {
  done_.examples = journal.examples();
  done_.rows = journal.rows();
  done_.tokens = journal.tokens();
}

void PartWriter::capture(const PreparedBatch& prepared, Backend& backend,
                         LayerStatistics* statistics) {
  add(prepared,
      [&](RowSink& sink) { return capture_batch(plan_, backend, prepared, sink, statistics); });
}

void PartWriter::append(const PreparedBatch& prepared, const HeldRows& rows,
                        const CapturedCount& count) {
  add(prepared, [&](RowSink& sink) {
    rows.hand_to(sink);
    return count;
  });
}

void PartWriter::add(const PreparedBatch& prepared,
                     const std::function<CapturedCount(RowSink&)>& fill) {
  if (!segment_) open_segment();
  SegmentSink sink(plan_, prepared, *segment_, segment_->examples());
  for (const auto& example : prepared.examples) segment_->add_example(example.record);
  const auto kept = fill(sink);
  for (auto* entry : {&open_, &done_}) {
    entry->examples += static_cast<std::int64_t>(prepared.examples.size());
    entry->rows += kept.rows;
    entry->non_finite += kept.non_finite;
    entry->tokens += prepared.tokens();
  }
  forward_seconds_ += kept.forward_seconds;
  if (due()) begin_closing();
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
  closing_ = std::async(std::launch::async,
                        [this, entry = open_, segment = std::move(segment_)]() mutable {
                          entry.checksum = segment->commit();
                          journal_.add(entry);
                          if (stored_) stored_(entry);
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
