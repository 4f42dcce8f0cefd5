#include "capture/writer/part_writer.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/text.h"
#include "base/core/thread_pool.h"
#include "capture/format/layout.h"

namespace qkscope {
namespace {

constexpr std::uint64_t kSegmentBytes = std::uint64_t{64} << 20;
constexpr std::size_t kSegmentExamples = 64;
constexpr auto kSegmentTime = std::chrono::seconds(2);

// Callback for sampled rows. vectors: float32, shape (positions, selected heads, head_dim).
using RowConsumer = std::function<void(const SampledRowRange& rows, ConstTensorView vectors)>;

std::span<const float> head_vector_at(ConstTensorView vectors, std::int64_t row,
                                      std::int64_t head) {
  return {vectors.data<float>() + row * vectors.stride(0) + head * vectors.stride(1),
          static_cast<std::size_t>(vectors.dim(2))};
}

class CaptureObserver : public Observer {
 public:
  CaptureObserver(const PartWriterPlan& plan, const ExampleBatch& prepared, RowConsumer sink)
      : plan_(plan), prepared_(prepared), sink_(std::move(sink)) {
    QKSCOPE_ASSERT(prepared.samples.size() == plan.points.size());
  }

  bool wants(HookPoint point) const override {
    const auto group = group_index(point);
    return group < prepared_.samples.size() && !prepared_.samples[group].rows.empty();
  }

  Selection selection(HookPoint point) const override {
    const auto group = group_index(point);
    return {.rows = prepared_.samples[group].rows, .heads = plan_.manifest.groups[group].heads};
  }

  // activation: shape (sampled rows, selected heads, head_dim)
  void observe(HookPoint point, ConstTensorView activation) override {
    const auto start = Clock::now();
    const auto group = group_index(point);
    check_shape(group, activation);
    const auto& sample = prepared_.samples[group];
    std::size_t begin = 0;
    for (std::size_t sequence = 0; sequence < sample.ends.size(); ++sequence) {
      const auto end = sample.ends[sequence];
      if (end == begin) continue;
      const auto example = prepared_.sequence[sequence];
      const auto positions = std::span(sample.positions).subspan(begin, end - begin);
      const auto vectors =
          activation.rows(static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end));
      check_vectors_finite(group, prepared_.examples[example].record, positions, vectors);
      sink_({example, group, begin, end}, vectors);
      begin = end;
    }
    count_.rows += activation.dim(0) * activation.dim(1);
    ++seen_[group];
    seconds_ += seconds_since(start);
  }

  // Throws a bad-input error unless the engine passed every requested hook point exactly once.
  void check_all_points_passed() const {
    for (std::size_t group = 0; group < seen_.size(); ++group) {
      const auto point = plan_.points[group];
      if (seen_[group] == (wants(point) ? 1 : 0)) continue;
      reject("layer {}: the engine passed {} {} times in one forward pass; expected once",
             point.layer, hook_name(point), seen_[group]);
    }
  }

  const CapturedBatch::BatchTotals& batch_totals() const { return count_; }
  double seconds_observing() const { return seconds_; }  // time spent in observe()

 private:
  // Returns the index of the hook point's group, or the number of groups if it is not captured.
  std::size_t group_index(HookPoint point) const {
    const auto found = std::ranges::find(plan_.points, point);
    return static_cast<std::size_t>(found - plan_.points.begin());
  }

  void check_shape(std::size_t group, ConstTensorView activation) const {
    if (group == plan_.points.size())
      reject("the engine passed a hook point that the capture does not want");
    const auto& of_group = plan_.manifest.groups[group];
    const Shape expected = {std::ssize(prepared_.samples[group].rows), std::ssize(of_group.heads),
                            plan_.manifest.head_dim_of(of_group)};
    if (activation.shape() != expected || activation.dtype() != DType::f32)
      reject(
          "{}: the engine passed {} of shape {}; expected float32 of shape {}: (sampled rows, "
          "selected heads, width of a head)",
          hook_name(plan_.points[group]), dtype_name(activation.dtype()),
          activation.shape().to_string(), expected.to_string());
  }

  // vectors: shape (positions, selected heads, head_dim)
  void check_vectors_finite(std::size_t group, const ExampleRecord& example,
                            std::span<const std::int32_t> positions, ConstTensorView vectors) {
    for (std::int64_t row = 0; row < vectors.dim(0); ++row)
      for (std::int64_t head = 0; head < vectors.dim(1); ++head) {
        const auto vector = head_vector_at(vectors, row, head);
        if (all_finite(vector)) continue;
        ++count_.non_finite;
        if (plan_.keep_non_finite) continue;
        const auto& heads = plan_.manifest.groups[group];
        const auto dtype = dtype_name(plan_.backend.dtype);
        const auto range =
            plan_.backend.dtype == DType::f32
                ? ""
                : fmt::format(", or numbers left the range of {} (try --dtype float32)", dtype);
        reject(
            "layer {}, {} head {}, text {} (row {} of the dataset), position {}: the vector holds "
            "{}; the weights or settings of the model are broken{}; --non-finite keep stores such "
            "rows and counts them",
            heads.layer, heads.kind == HeadKind::query ? "query" : "key",
            heads.heads[static_cast<std::size_t>(head)], quote_text(example.source_id), example.row,
            positions[static_cast<std::size_t>(row)],
            *std::ranges::find_if_not(vector, [](float x) { return std::isfinite(x); }), range);
      }
  }

  const PartWriterPlan& plan_;
  const ExampleBatch& prepared_;
  RowConsumer sink_;
  CapturedBatch::BatchTotals count_;
  std::vector<int> seen_ = std::vector<int>(plan_.points.size());  // observe() calls by group
  double seconds_ = 0.0;
};

CapturedBatch::BatchTotals capture_batch(const PartWriterPlan& plan, const ExampleBatch& prepared,
                                         const RunPass& run, RowConsumer sink) {
  if (prepared.sequence.empty()) return {};
  CaptureObserver observer(plan, prepared, std::move(sink));
  const auto start = Clock::now();
  run(prepared.batch, observer);
  observer.check_all_points_passed();
  auto count = observer.batch_totals();
  count.forward_seconds = seconds_since(start);
  // On a CPU, subtract the time spent storing rows. On a GPU, it overlaps with the forward pass.
  if (plan.backend.device.kind == Device::Kind::cpu)
    count.forward_seconds -= observer.seconds_observing();
  return count;
}

}  // namespace

Tensor contiguous_copy(ConstTensorView from) {
  Tensor copy(from.shape());
  auto* to = copy.data<float>();
  for (std::int64_t row = 0; row < from.dim(0); ++row)
    for (std::int64_t head = 0; head < from.dim(1); ++head)
      to = std::ranges::copy(head_vector_at(from, row, head), to).out;
  return copy;
}

CapturedBatch capture_to_memory(const PartWriterPlan& plan, const ExampleBatch& prepared,
                                const RunPass& run) {
  CapturedBatch captured;
  const auto keep = [&](const SampledRowRange& rows, ConstTensorView vectors) {
    captured.blocks.push_back({rows, contiguous_copy(vectors)});
  };
  captured.count = capture_batch(plan, prepared, run, keep);
  return captured;
}

CapturePartWriter::CapturePartWriter(const PartWriterPlan& plan, Journal& journal,
                                     std::function<void(const JournalEntry&)> stored)
    : plan_(plan),
      journal_(journal),
      stored_(std::move(stored)),
      segments_(journal.entries().size()) {
  done_.examples = journal.example_count();
  done_.rows = journal.row_count();
  done_.tokens = journal.token_count();
}

void CapturePartWriter::capture_and_store(const ExampleBatch& prepared, const RunPass& run) {
  begin_batch(prepared);
  const auto store = [&](const SampledRowRange& rows, ConstTensorView vectors) {
    add_rows(prepared, rows, vectors);
  };
  finish_batch(prepared, capture_batch(plan_, prepared, run, store));
}

void CapturePartWriter::append_batch(const ExampleBatch& prepared, const CapturedBatch& captured) {
  begin_batch(prepared);
  for (const auto& [rows, vectors] : captured.blocks) add_rows(prepared, rows, vectors);
  finish_batch(prepared, captured.count);
}

void CapturePartWriter::begin_batch(const ExampleBatch& prepared) {
  if (!segment_) {
    open_ = JournalEntry{};
    open_.segment = segment_name(segments_++);
    segment_ = std::make_unique<SegmentWriter>(journal_.segment_path(open_.segment),
                                               plan_.manifest.groups.size());
    opened_ = Clock::now();
  }
  first_ = segment_->example_count();
  for (const auto& example : prepared.examples) segment_->add_example(example.record);
}

void CapturePartWriter::add_rows(const ExampleBatch& prepared, const SampledRowRange& rows,
                                 ConstTensorView vectors) {
  const auto positions =
      std::span(prepared.samples[rows.group].positions).subspan(rows.begin, rows.end - rows.begin);
  std::vector<std::string_view> strings;
  if (plan_.manifest.token_strings)
    for (const auto position : positions)
      strings.push_back(
          prepared.examples[rows.example].token_strings[static_cast<std::size_t>(position)]);
  segment_->add_block(first_ + rows.example, rows.group, positions, strings, vectors);
}

void CapturePartWriter::finish_batch(const ExampleBatch& prepared,
                                     const CapturedBatch::BatchTotals& count) {
  for (auto* entry : {&open_, &done_}) {
    entry->examples += std::ssize(prepared.examples);
    entry->rows += count.rows;
    entry->non_finite += count.non_finite;
    entry->tokens += prepared.token_count();
  }
  forward_seconds_ += count.forward_seconds;
  if (segment_->content_bytes() >= kSegmentBytes || segment_->example_count() >= kSegmentExamples ||
      Clock::now() - opened_ >= kSegmentTime)
    commit_segment_in_background();
}

void CapturePartWriter::commit_segment_in_background() {
  wait_for_segment_commit();
  closing_ = run_in_background([this, entry = open_, segment = std::move(segment_)]() mutable {
    entry.checksum = segment->commit();
    journal_.append_entry(entry);
    if (stored_) stored_(entry);
  });
}

void CapturePartWriter::wait_for_segment_commit() {
  if (closing_.valid()) closing_.get();
}

void CapturePartWriter::flush() {
  if (segment_) commit_segment_in_background();
  wait_for_segment_commit();
}

}  // namespace qkscope
