#include "engine/device/cuda/statistics/moment_statistics.h"

#include <algorithm>

#include "base/core/error.h"
#include "base/core/thread_pool.h"

namespace qkscope::cuda {
namespace {

constexpr std::int32_t kAllFinite = 0x7f7f7f7f;
// Blocks per launch, about one per multiprocessor of a large GPU. The number is fixed so that sums
// are bit-identical on every GPU.
constexpr std::int64_t kBlocks = 128;
constexpr std::int32_t kFirstShare = 4;

// Consecutive parts of a result buffer.
struct ResultLayout {
  ResultLayout(const MomentRequest& request)
      : shape(request.shape), record{shape.dim, shape.pairs} {}

  MomentShape shape;
  MomentRecordLayout record;

  std::int64_t bucket_cell_count() const { return shape.heads * shape.buckets; }
  // Offsets in bytes.
  std::int64_t row_set_offset(int number) const { return number * shape.heads * record.size() * 8; }
  std::int64_t mean_offset() const { return row_set_offset(2); }
  std::int64_t m2_offset() const { return mean_offset() + bucket_cell_count() * shape.dim * 8; }
  std::int64_t covariance_offset() const {
    return m2_offset() + bucket_cell_count() * shape.dim * 8;
  }
  std::int64_t shift_offset() const {
    return covariance_offset() +
           (shape.bucket_covariance ? bucket_cell_count() * record.triangle_size() * 8 : 0);
  }
  std::int64_t shift_count() const { return 3 * shape.heads * shape.dim; }
  std::int64_t non_finite_flag_offset() const { return shift_offset() + shift_count() * 4; }
  std::int64_t bytes() const { return non_finite_flag_offset() + 4; }
};

template <typename T>
const T* pointer_at_offset(const std::byte* bytes, std::int64_t offset) {
  return reinterpret_cast<const T*>(bytes + offset);
}

void read_head_moments(HeadMoments& moments, const MomentRecordLayout& record, const double* from,
                       std::int64_t head) {
  const auto dim = record.dim;
  std::copy_n(from, record.triangle_size(), moments.m2.begin() + head * record.triangle_size());
  const auto take = [&](int sum, std::vector<double>& to) {
    std::copy_n(from + record.sums_offset() + sum * dim, dim, to.begin() + head * dim);
  };
  take(kSumY, moments.mean);
  take(kSumZT, moments.ct);
  take(kSumZU, moments.cu);
  take(kSumY3, moments.m3);
  take(kSumY4, moments.m4);
  for (std::int64_t i = 0; i < dim; ++i) {
    const auto to = as_index(head * dim + i);
    moments.min[to] = static_cast<float>(from[record.least_offset() + i]);
    moments.max[to] = static_cast<float>(from[record.largest_offset() + i]);
  }
  std::copy_n(from + record.offset_of_pair_magnitudes(), record.pairs,
              moments.pair_abs.begin() + head * record.pairs);
  moments.norm_mean[as_index(head)] = from[record.norm_offset()];
  moments.norm_max[as_index(head)] = static_cast<float>(from[record.norm_max_offset()]);
}

void read_set_moments(HeadMoments& moments, const ResultLayout& layout, const double* values,
                      const PositionSums& positions) {
  const auto& record = layout.record;
  if (positions.n == 0) moments = empty_moments(layout.shape);
  moments.positions = positions;
  if (positions.n == 0) return;
  parallel_for_ranges(moments.heads, 1, [&](std::int64_t head, std::int64_t) {
    read_head_moments(moments, record, values + head * record.size(), head);
  });
}

void read_bucket_moments(BucketMoments& buckets, const ResultLayout& layout,
                         const std::byte* bytes) {
  std::copy_n(pointer_at_offset<double>(bytes, layout.mean_offset()), buckets.mean.size(),
              buckets.mean.begin());
  std::copy_n(pointer_at_offset<double>(bytes, layout.m2_offset()), buckets.m2.size(),
              buckets.m2.begin());
  std::copy_n(pointer_at_offset<double>(bytes, layout.covariance_offset()), buckets.cov.size(),
              buckets.cov.begin());
}

// Computes the moment record of every segment and the sums of every chunk, deterministically.
void sum_moments(const MomentArguments& arguments, cudaStream_t stream) {
  QKSCOPE_ASSERT(arguments.record.dim > 0 && 2 * arguments.record.pairs <= arguments.record.dim);
  if (arguments.segment_count == 0) return;
  if (moments_fit_tensor_cores(arguments))
    sum_moments_16bit(arguments, stream);
  else
    sum_moments_float64(arguments, stream);
}

}  // namespace

MomentChunks cut_sequences_into_chunks(std::span<const Sequence> sequences,
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
  const auto by_bucket = [](const MomentChunk& a, const MomentChunk& b) {
    return a.bucket < b.bucket;
  };
  std::stable_sort(chunks.chunks.begin(), chunks.chunks.begin() + chunks.body, by_bucket);
  std::stable_sort(chunks.chunks.begin() + chunks.body, chunks.chunks.end(), by_bucket);
  return chunks;
}

MomentSchedule schedule_moments(const MomentChunks& chunks, std::int64_t buckets,
                                std::int64_t heads) {
  const auto count = static_cast<std::int32_t>(chunks.chunks.size());
  const auto length = static_cast<std::int32_t>(
      std::max<std::int64_t>(1, ((count - chunks.body) * heads + kBlocks - 1) / kBlocks));
  MomentSchedule schedule;
  schedule.buckets.resize(as_index(buckets));
  for (std::int32_t begin = 0; begin < count;) {
    const auto bucket = chunks.chunks[as_index(begin)].bucket;
    const bool is_first = begin < chunks.body;
    auto end = begin;
    while (end < (is_first ? chunks.body : count) && chunks.chunks[as_index(end)].bucket == bucket)
      ++end;
    const auto segment = static_cast<std::int32_t>(schedule.segments.size());
    // Documents have few first tokens, so segments of first tokens are shorter.
    const auto step = is_first ? std::max(1, length / kFirstShare) : length;
    for (auto from = begin; from < end; from += step)
      schedule.segments.push_back({from, std::min(from + step, end)});
    const auto segment_end = static_cast<std::int32_t>(schedule.segments.size());
    auto& of_bucket = schedule.buckets[as_index(bucket)];
    (is_first ? of_bucket.first_chunks : of_bucket.body_chunks) = {begin, end};
    (is_first ? of_bucket.first_segments : of_bucket.body_segments) = {segment, segment_end};
    if (is_first) schedule.body = segment_end;
    begin = end;
  }
  return schedule;
}

void MomentStatistics::begin_batch(const Batch& batch) {
  batch_ = &batch;
  for (auto& [key, uploaded] : plans_) uploaded.plan.reset();
}

const MomentStatistics::UploadedPlan& MomentStatistics::find_or_make_plan(
    const MomentRequest& request) {
  const MomentPartition partition{request.first, request.bucket_size, request.shape.buckets};
  auto& uploaded = plans_[{partition, request.shape.heads}];
  if (uploaded.plan) return uploaded;
  auto plan = std::make_shared<BatchPlan>();
  plan->chunks = cut_sequences_into_chunks(batch_->sequences, partition);
  plan->bucket_rows.resize(as_index(partition.buckets));
  for (std::size_t i = 0; i < plan->chunks.chunks.size(); ++i) {
    const auto& chunk = plan->chunks.chunks[i];
    const bool is_body = static_cast<std::int32_t>(i) >= plan->chunks.body;
    plan->positions[is_body ? 1 : 0] +=
        table_.sums_over(chunk.position, chunk.position + chunk.rows);
    plan->bucket_rows[as_index(chunk.bucket)] += chunk.rows;
  }
  plan->schedule = schedule_moments(plan->chunks, partition.buckets, request.shape.heads);
  uploaded.chunks.upload(plan->chunks.chunks, "statistics", stream_);
  uploaded.segments.upload(plan->schedule.segments, "statistics", stream_);
  uploaded.buckets.upload(plan->schedule.buckets, "statistics", stream_);
  uploaded.plan = std::move(plan);
  return uploaded;
}

LayerMoments& MomentStatistics::moments_buffer(const MomentShape& shape) {
  for (auto& [known, moments] : moments_)
    if (known == shape) return *moments;
  return *moments_.emplace_back(shape, std::make_unique<LayerMoments>(empty_layer_moments(shape)))
              .second;
}

void MomentStatistics::add(const DeviceView& x, const MomentRequest& request,
                           MomentConsumer& sink) {
  const auto& shape = request.shape;
  QKSCOPE_ASSERT(x.heads == shape.heads && x.width == shape.dim && x.rows == batch_->rows());
  const auto& uploaded = find_or_make_plan(request);
  const auto& plan = *uploaded.plan;
  const ResultLayout layout(request);
  const auto chunks = std::ssize(plan.chunks.chunks);
  const auto segments = std::ssize(plan.schedule.segments);
  auto* result = results_.begin_transfer(layout.bytes(), layout.bytes(), "statistics");
  // Known shifts are uploaded; others are zero until the first body row (a row after the first
  // tokens of a document) arrives, from which they are estimated.
  auto* found_shifts = reinterpret_cast<float*>(result + layout.shift_offset());
  const bool knows_shift = !request.shift->empty();
  const bool finds_shift = !knows_shift && plan.positions[1].n > 0;
  const float* shifts = knows_shift
                            ? results_.index_buffer().upload(*request.shift, "statistics", stream_)
                            : found_shifts;
  const MomentShift shift{.product = shifts,
                          .centre = shifts + shape.heads * shape.dim,
                          .limit = shifts + 2 * shape.heads * shape.dim};
  auto* records = static_cast<double*>(
      records_.reserve_with_slack(segments * shape.heads * layout.record.size() * 8, "statistics"));
  auto* chunk_sums = static_cast<float*>(
      chunk_sums_.reserve_with_slack(chunks * shape.heads * 2 * shape.dim * 4, "statistics"));
  const MomentArguments sums{.x = x.data,
                             .row_stride = x.row_stride,
                             .heads = shape.heads,
                             .record = layout.record,
                             .interleaved = request.interleaved,
                             .dtype = x.dtype,
                             .bucket_covariance = shape.bucket_covariance,
                             .chunks = uploaded.chunks.as<MomentChunk>(),
                             .segments = uploaded.segments.as<MomentSegment>(),
                             .segment_count = segments,
                             .shift = shift,
                             .records = records,
                             .chunk_sums = chunk_sums};
  if (finds_shift)
    estimate_moment_shift(sums, {plan.chunks.body, static_cast<std::int32_t>(chunks)}, found_shifts,
                          stream_);
  else if (!knows_shift)
    check(cudaMemsetAsync(found_shifts, 0, as_index(layout.shift_count()) * sizeof(float), stream_),
          "clear shifts");
  check(cudaMemsetAsync(result + layout.non_finite_flag_offset(), kAllFinite & 0xff, 4, stream_),
        "clear a flag");
  sum_moments(sums, stream_);
  center_sums(sums, request, uploaded, result);
  send_result(request, uploaded.plan, finds_shift, sink);
}

void MomentStatistics::center_sums(const MomentArguments& sums, const MomentRequest& request,
                                   const UploadedPlan& uploaded, std::byte* result) {
  const ResultLayout layout(request);
  const auto& plan = *uploaded.plan;
  const auto body = plan.schedule.body;
  const auto end = static_cast<std::int32_t>(sums.segment_count);
  const auto set = [&](int number, MomentSegment segments) -> TokenSetMoments {
    return {segments, plan.positions[number].to_position_sums(),
            reinterpret_cast<double*>(result + layout.row_set_offset(number))};
  };
  const bool covariance = request.shape.bucket_covariance;
  center_moments(
      sums, {{set(0, {0, body}), set(1, {body, end})}},
      {.segments = uploaded.buckets.as<BucketSegments>(),
       .buckets = request.shape.buckets,
       .mean = reinterpret_cast<double*>(result + layout.mean_offset()),
       .m2 = reinterpret_cast<double*>(result + layout.m2_offset()),
       .cov = covariance ? reinterpret_cast<double*>(result + layout.covariance_offset()) : nullptr,
       .not_finite = reinterpret_cast<std::int32_t*>(result + layout.non_finite_flag_offset())},
      stream_);
}

void MomentStatistics::send_result(const MomentRequest& request,
                                   std::shared_ptr<const BatchPlan> plan, bool finds_shift,
                                   MomentConsumer& sink) {
  const ResultLayout layout(request);
  results_.send([this, layout, plan = std::move(plan), finds_shift, request = &request,
                 sink = &sink](const std::byte* bytes) {
    const auto bad = *pointer_at_offset<std::int32_t>(bytes, layout.non_finite_flag_offset());
    if (bad != kAllFinite)
      sink->throw_non_finite(
          {.head = bad % layout.shape.heads,
           .sequence = plan->chunks.chunks[as_index(bad / layout.shape.heads)].sequence});
    if (finds_shift) {
      const auto* values = pointer_at_offset<float>(bytes, layout.shift_offset());
      request->shift->assign(values, values + layout.shift_count());
    }
    auto& moments = moments_buffer(layout.shape);
    read_set_moments(moments.first, layout,
                     pointer_at_offset<double>(bytes, layout.row_set_offset(0)),
                     plan->positions[0].to_position_sums());
    read_set_moments(moments.body, layout,
                     pointer_at_offset<double>(bytes, layout.row_set_offset(1)),
                     plan->positions[1].to_position_sums());
    read_bucket_moments(moments.buckets, layout, bytes);
    moments.buckets.n = plan->bucket_rows;
    sink->add(moments);
  });
}

}  // namespace qkscope::cuda
