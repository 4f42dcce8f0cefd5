#include "engine/device/cuda/statistics/moment_statistics.h"

#include <algorithm>

#include "base/core/error.h"
#include "base/core/thread_pool.h"

namespace qkscope::cuda {
namespace {

constexpr std::int32_t kAllFinite = 0x7f7f7f7f;
// Thread blocks per launch, about two per multiprocessor of a large GPU. The number is fixed so
// that sums are bit-identical on every GPU.
constexpr std::int64_t kBlocks = 256;
// Rows per segment are bounded, because products of channels are summed in float32.
constexpr std::int64_t kMostSegmentRows = 1024;
constexpr std::int32_t kShortChunks = 4;  // most short chunks per segment

// Offsets in bytes of the parts of a result buffer; CombinedMoments describes the parts.
struct MomentResultLayout {
  MomentResultLayout(const MomentRequest& request)
      : shape(request.shape), record{shape.dim, shape.pairs} {}

  MomentShape shape;
  MomentRecordLayout record;

  std::int64_t triangle_offset() const { return 2 * shape.heads * record.size() * 8; }
  std::int64_t bucket_sum_offset() const {
    return triangle_offset() + 2 * shape.heads * record.triangle_size() * 8;
  }
  std::int64_t bucket_triangle_offset() const {
    return bucket_sum_offset() + shape.heads * shape.buckets * 2 * shape.dim * 8;
  }
  std::int64_t shift_offset() const {
    return bucket_triangle_offset() +
           (shape.bucket_covariance ? shape.heads * shape.buckets * record.triangle_size() * 8 : 0);
  }
  std::int64_t shift_count() const { return 3 * shape.heads * shape.dim; }
  std::int64_t non_finite_flag_offset() const { return shift_offset() + shift_count() * 4; }
  std::int64_t bytes() const { return non_finite_flag_offset() + 4; }
};

template <typename T>
const T* pointer_at_offset(const std::byte* bytes, std::int64_t offset) {
  return reinterpret_cast<const T*>(bytes + offset);
}

// Subtracts n mean mean^T from the upper triangle of a sum of n outer products.
void center_gram_triangle(std::span<double> triangle, std::span<const double> mean, double n) {
  auto* product = triangle.data();
  for (std::size_t row = 0; row < mean.size(); ++row) {
    const double scaled = n * mean[row];
    for (auto column = row; column < mean.size(); ++column) *product++ -= scaled * mean[column];
  }
}

// Reads sums from a result buffer on the host and centres them. `shifts`: see MomentShift.
class MomentResultReader {
 public:
  MomentResultReader(const MomentResultLayout& layout, const std::byte* bytes,
                     std::span<const float> shifts)
      : layout_(layout),
        bytes_(bytes),
        product_shift_(shifts),
        centre_(shifts.subspan(shifts.size() / 3)) {}

  // Reads the centred moments of token set `number`.
  void read_token_set(HeadMoments& moments, int number, const PositionSums& positions) const {
    if (positions.n == 0) moments = make_head_moments(layout_.shape);
    moments.positions = positions;
    if (positions.n == 0) return;
    parallel_for_ranges(moments.heads, 1,
                        [&](std::int64_t head, std::int64_t) { read_head(moments, number, head); });
  }

  void read_buckets(BucketMoments& buckets) const {
    std::vector<double> z(as_index(layout_.shape.dim));  // mean of x - c
    const auto& shape = layout_.shape;
    const auto* sums = pointer_at_offset<double>(bytes_, layout_.bucket_sum_offset());
    const auto* triangles = pointer_at_offset<double>(bytes_, layout_.bucket_triangle_offset());
    for (std::int64_t head = 0; head < shape.heads; ++head)
      for (std::int64_t bucket = 0; bucket < shape.buckets; ++bucket) {
        const auto n = static_cast<double>(buckets.n[as_index(bucket)]);
        const auto cell = head * shape.buckets + bucket;
        for (std::int64_t i = 0; i < shape.dim; ++i) {
          const double y = sums[cell * 2 * shape.dim + i];
          const double y2 = sums[(cell * 2 + 1) * shape.dim + i];
          const auto at = as_index(cell * shape.dim + i), channel = as_index(head * shape.dim + i);
          buckets.mean[at] = n > 0 ? centre_[channel] + y / n : 0;
          buckets.m2[at] = n > 0 ? std::max(y2 - y * (y / n), 0.0) : 0;
          z[as_index(i)] = n > 0 ? y / n + shift_difference(channel) : 0;
        }
        if (!shape.bucket_covariance) continue;
        const auto size = layout_.record.triangle_size();
        const auto cov = std::span(buckets.cov).subspan(as_index(cell * size), as_index(size));
        std::copy_n(triangles + cell * size, size, cov.begin());
        center_gram_triangle(cov, z, n);
      }
  }

 private:
  // Returns the difference e - c of a channel's two shifts (MomentShift). The mean of x - e plus
  // this difference is the mean of x - c.
  double shift_difference(std::size_t channel) const {
    return static_cast<double>(centre_[channel]) - product_shift_[channel];
  }

  void read_head(HeadMoments& moments, int number, std::int64_t head) const {
    std::vector<double> z(as_index(layout_.shape.dim));  // mean of x - c
    const auto& record = layout_.record;
    const auto dim = record.dim, size = record.triangle_size();
    const auto& positions = moments.positions;
    const auto n = static_cast<double>(positions.n);
    const auto cell = number * layout_.shape.heads + head;
    const auto* sums = pointer_at_offset<double>(bytes_, 0) + cell * record.size();
    for (std::int64_t i = 0; i < dim; ++i) {
      const auto sum = [&](ChannelSum row) { return sums[row * dim + i]; };
      const auto at = as_index(head * dim + i);
      const double m = sum(kSumY) / n, y2 = sum(kSumY2), y3 = sum(kSumY3);
      z[as_index(i)] = m + shift_difference(at);
      moments.mean[at] = centre_[at] + m;
      moments.ct[at] = sum(kSumZT) - n * z[as_index(i)] * positions.t_mean;
      moments.cu[at] = sum(kSumZU) - n * z[as_index(i)] * positions.u_mean;
      moments.m3[at] = y3 - 3 * m * y2 + 2 * n * m * m * m;
      moments.m4[at] = sum(kSumY4) - 4 * m * y3 + 6 * m * m * y2 - 3 * n * m * m * m * m;
      moments.min[at] = static_cast<float>(-sum(kNegatedLeast));
      moments.max[at] = static_cast<float>(sum(kLargest));
    }
    for (std::int64_t i = 0; i < record.pairs; ++i)
      moments.pair_abs[as_index(head * record.pairs + i)] = sums[record.rotary_offset() + i] / n;
    moments.norm_mean[as_index(head)] = sums[record.norm_offset()] / n;
    moments.norm_max[as_index(head)] = static_cast<float>(sums[record.norm_max_offset()]);
    const auto m2 = std::span(moments.m2).subspan(as_index(head * size), as_index(size));
    std::copy_n(pointer_at_offset<double>(bytes_, layout_.triangle_offset()) + cell * size, size,
                m2.begin());
    center_gram_triangle(m2, z, n);
    for (std::int64_t i = 0; i < dim; ++i) {
      auto& variance = m2[as_index(triangle_index(dim, i, i))];
      variance = std::max(variance, 0.0);
    }
  }

  const MomentResultLayout& layout_;
  const std::byte* bytes_;
  std::span<const float> product_shift_, centre_;  // (heads, dim)
};

}  // namespace

MomentChunks split_sequences_into_chunks(std::span<const Sequence> sequences,
                                         const MomentPartition& partition) {
  MomentChunks chunks;
  std::vector<MomentChunk> body;
  std::int32_t number = 0;
  for (const auto& sequence : sequences) {
    for (const auto& chunk :
         split_document(sequence.length, partition.first, partition.bucket_size, partition.buckets))
      (chunk.first ? chunks.chunks : body)
          .push_back({.row = static_cast<std::int32_t>(sequence.begin + chunk.begin),
                      .rows = static_cast<std::int32_t>(chunk.rows()),
                      .position = static_cast<std::int32_t>(chunk.begin),
                      .bucket = static_cast<std::int32_t>(chunk.bucket),
                      .sequence = number});
    ++number;
  }
  chunks.body = static_cast<std::int32_t>(chunks.chunks.size());
  chunks.chunks.insert(chunks.chunks.end(), body.begin(), body.end());
  const auto order = [](const MomentChunk& chunk) {
    return std::pair(chunk.bucket, !has_few_rows(chunk));
  };
  const auto all = std::span(chunks.chunks), first = all.first(as_index(chunks.body));
  std::ranges::stable_sort(first, {}, order);
  std::ranges::stable_sort(all.subspan(first.size()), {}, order);
  return chunks;
}

MomentSchedule schedule_moments(const MomentChunks& chunks, std::int64_t buckets,
                                std::int64_t heads, bool fits) {
  const auto count = static_cast<std::int32_t>(chunks.chunks.size());
  std::int64_t rows = 0;
  for (const auto& chunk : chunks.chunks) rows += chunk.rows;
  const auto most_rows =
      std::clamp<std::int64_t>(rows * heads / kBlocks, kMomentChunkRows, kMostSegmentRows);
  MomentSchedule schedule;
  schedule.buckets.resize(as_index(buckets));
  for (std::int32_t begin = 0; begin < count;) {
    const auto bucket = chunks.chunks[as_index(begin)].bucket;
    const bool is_first = begin < chunks.body;
    const auto segment = static_cast<std::int32_t>(schedule.segments.size());
    auto end = begin;
    std::int64_t segment_rows = 0;
    for (; end < (is_first ? chunks.body : count) && chunks.chunks[as_index(end)].bucket == bucket;
         ++end) {
      const auto& chunk = chunks.chunks[as_index(end)];
      const bool is_new =
          end == begin || has_few_rows(chunk) != has_few_rows(chunks.chunks[as_index(end - 1)]) ||
          (has_few_rows(chunk) ? end - schedule.segments.back().begin == kShortChunks
                               : segment_rows + chunk.rows > most_rows);
      if (is_new) {
        schedule.segments.push_back(
            {end, end, static_cast<std::int32_t>(schedule.float64_segments.size())});
        if (!fits || has_few_rows(chunk))
          schedule.float64_segments.push_back(static_cast<std::int32_t>(schedule.segments.size()) -
                                              1);
        segment_rows = 0;
      }
      ++schedule.segments.back().end;
      segment_rows += chunk.rows;
    }
    const auto segment_end = static_cast<std::int32_t>(schedule.segments.size());
    schedule.buckets[as_index(bucket)].of_set[is_first ? 0 : 1] = {segment, segment_end};
    if (is_first) schedule.body = segment_end;
    begin = end;
  }
  return schedule;
}

void MomentStatistics::begin_batch(const Batch& batch) {
  batch_ = &batch;
  for (auto& [key, uploaded] : plans_) uploaded.plan.reset();
}

const MomentStatistics::UploadedMomentPlan& MomentStatistics::find_or_make_plan(
    const MomentRequest& request, bool fits) {
  const MomentPartition partition{request.first, request.bucket_size, request.shape.buckets};
  auto& uploaded = plans_[{partition, request.shape.heads, fits}];
  if (uploaded.plan) return uploaded;
  auto plan = std::make_shared<MomentBatchPlan>();
  plan->chunks = split_sequences_into_chunks(batch_->sequences, partition);
  plan->bucket_rows.resize(as_index(partition.buckets));
  for (std::size_t i = 0; i < plan->chunks.chunks.size(); ++i) {
    const auto& chunk = plan->chunks.chunks[i];
    const bool is_body = static_cast<std::int32_t>(i) >= plan->chunks.body;
    plan->positions[is_body ? 1 : 0] +=
        table_.sums_over(chunk.position, chunk.position + chunk.rows);
    plan->bucket_rows[as_index(chunk.bucket)] += chunk.rows;
  }
  plan->schedule = schedule_moments(plan->chunks, partition.buckets, request.shape.heads, fits);
  uploaded.chunks.upload(plan->chunks.chunks, "statistics", stream_);
  uploaded.segments.upload(plan->schedule.segments, "statistics", stream_);
  uploaded.float64_segments.upload(plan->schedule.float64_segments, "statistics", stream_);
  uploaded.buckets.upload(plan->schedule.buckets, "statistics", stream_);
  uploaded.plan = std::move(plan);
  return uploaded;
}

void MomentStatistics::reserve_segment_sums(MomentArguments& sums, bool fits) {
  const auto allocate = [](DeviceMemory& memory, std::int64_t bytes) {
    return memory.reserve_with_slack(bytes, "statistics");
  };
  const auto segments = sums.segment_count * sums.heads;
  const auto float64_segments = sums.float64_segment_count * sums.heads;
  sums.records = static_cast<double*>(allocate(records_, segments * sums.record.size() * 8));
  sums.triangles = static_cast<double*>(
      allocate(triangles_, float64_segments * sums.record.triangle_size() * 8));
  if (!fits) return;
  sums.fragments = static_cast<float*>(
      allocate(fragments_, segments * choose_gram_fragments(sums.record.dim).size() * 4));
}

LayerMoments& MomentStatistics::moments_buffer(const MomentShape& shape) {
  for (auto& [known, moments] : moments_)
    if (known == shape) return *moments;
  return *moments_.emplace_back(shape, std::make_unique<LayerMoments>(make_layer_moments(shape)))
              .second;
}

void MomentStatistics::add(const ActivationView& x, const MomentRequest& request,
                           MomentConsumer& sink) {
  const auto& shape = request.shape;
  QKSCOPE_ASSERT(x.heads == shape.heads && x.width == shape.dim && x.rows == batch_->rows());
  combined_.make_stream_wait(stream_);  // the previous call may still read the plan and the sums
  const bool fits = can_use_tensor_cores(x, shape);
  const auto& uploaded = find_or_make_plan(request, fits);
  const auto& plan = *uploaded.plan;
  const MomentResultLayout layout(request);
  auto* result = transfers_.begin_transfer(layout.bytes(), layout.bytes(), "statistics");
  // Known shifts are uploaded. Unknown shifts are estimated from the first batch with body rows
  // (rows after the first tokens of a document) and are zero until then.
  auto* found_shifts = reinterpret_cast<float*>(result + layout.shift_offset());
  const bool knows_shift = !request.shift->empty();
  const bool finds_shift = !knows_shift && plan.positions[1].n > 0;
  const float* shifts =
      knows_shift ? transfers_.index_buffer().upload(*request.shift, "statistics", stream_)
                  : found_shifts;
  const MomentShift shift{.product = shifts,
                          .centre = shifts + shape.heads * shape.dim,
                          .limit = shifts + 2 * shape.heads * shape.dim};
  MomentArguments sums{
      .x = x.data,
      .row_stride = x.row_stride,
      .heads = shape.heads,
      .record = layout.record,
      .interleaved = request.interleaved,
      .dtype = x.dtype,
      .chunks = uploaded.chunks.as<MomentChunk>(),
      .segments = uploaded.segments.as<MomentSegment>(),
      .segment_count = std::ssize(plan.schedule.segments),
      .float64_segments = uploaded.float64_segments.as<std::int32_t>(),
      .float64_segment_count = std::ssize(plan.schedule.float64_segments),
      .shift = shift,
      .not_finite = reinterpret_cast<std::int32_t*>(result + layout.non_finite_flag_offset())};
  reserve_segment_sums(sums, fits);
  if (finds_shift)
    estimate_moment_shift(sums,
                          {plan.chunks.body, static_cast<std::int32_t>(plan.chunks.chunks.size())},
                          found_shifts, stream_);
  else if (!knows_shift)
    check(cudaMemsetAsync(found_shifts, 0, as_index(layout.shift_count()) * sizeof(float), stream_),
          "clear shifts");
  check(cudaMemsetAsync(result + layout.non_finite_flag_offset(), kAllFinite & 0xff, 4, stream_),
        "clear a flag");
  sum_moments(sums, request, uploaded, result);
  enqueue_delivery(request, uploaded.plan, finds_shift, sink);
}

// Float64 sums and the combination of segments leave most of the GPU idle, so they run in parallel
// with the tensor-core kernel and the rest of the layer.
void MomentStatistics::sum_moments(const MomentArguments& sums, const MomentRequest& request,
                                   const UploadedMomentPlan& uploaded, std::byte* result) {
  QKSCOPE_ASSERT(sums.record.dim > 0 && 2 * sums.record.pairs <= sums.record.dim);
  on_main_.record(stream_);
  on_main_.make_stream_wait(side_);
  if (sums.fragments != nullptr) sum_moments_16bit(sums, stream_);
  sum_moments_float64(sums, side_);
  on_side_.record(side_);
  on_side_.make_stream_wait(stream_);  // x may change after this call
  on_main_.record(stream_);
  on_main_.make_stream_wait(side_);
  const MomentResultLayout layout(request);
  const auto at = [&](std::int64_t offset) { return reinterpret_cast<double*>(result + offset); };
  const auto body = uploaded.plan->schedule.body;
  combine_moments(
      sums,
      {.sets = {{0, body}, {body, static_cast<std::int32_t>(sums.segment_count)}},
       .records = at(0),
       .triangles = at(layout.triangle_offset()),
       .buckets = uploaded.buckets.as<BucketSegments>(),
       .bucket_count = request.shape.buckets,
       .bucket_sums = at(layout.bucket_sum_offset()),
       .bucket_triangles =
           request.shape.bucket_covariance ? at(layout.bucket_triangle_offset()) : nullptr},
      side_);
  combined_.record(side_);
}

void MomentStatistics::enqueue_delivery(const MomentRequest& request,
                                        std::shared_ptr<const MomentBatchPlan> plan,
                                        bool finds_shift, MomentConsumer& sink) {
  transfers_.enqueue_copy(
      [this, layout = MomentResultLayout(request), plan = std::move(plan), finds_shift,
       known_shift = *request.shift, request = &request, sink = &sink](const std::byte* bytes) {
        const auto bad = *pointer_at_offset<std::int32_t>(bytes, layout.non_finite_flag_offset());
        if (bad != kAllFinite)
          sink->throw_non_finite(
              {.head = bad % layout.shape.heads,
               .sequence = plan->chunks.chunks[as_index(bad / layout.shape.heads)].sequence});
        auto shift = std::span(known_shift);
        if (shift.empty())
          shift = {pointer_at_offset<float>(bytes, layout.shift_offset()),
                   as_index(layout.shift_count())};
        if (finds_shift) request->shift->assign(shift.begin(), shift.end());
        auto& moments = moments_buffer(layout.shape);
        moments.buckets.n = plan->bucket_rows;
        const MomentResultReader reader(layout, bytes, shift);
        reader.read_token_set(moments.first, 0, plan->positions[0].to_position_sums());
        reader.read_token_set(moments.body, 1, plan->positions[1].to_position_sums());
        reader.read_buckets(moments.buckets);
        sink->add(moments);
      },
      side_);
}

}  // namespace qkscope::cuda
