#include "engine/device/cuda/statistics/statistics_moments.h"

#include <algorithm>

#include "base/core/error.h"

namespace qkscope::cuda {
namespace {

// Blocks per launch, about two per multiprocessor of a large GPU. The number is fixed so that sums
// have the same bits on every GPU.
constexpr std::int64_t kBlocks = 256;
constexpr std::int32_t kFirstShare = 4;

// Appends the chunks of one document in row order.
void cut_document(const Sequence& sequence, std::int32_t number, const MomentCut& cut,
                  std::vector<MomentChunk>& first, std::vector<MomentChunk>& body) {
  for (std::int64_t position = 0; position < sequence.length;) {
    const auto bucket = std::min(position / cut.bucket_size, cut.buckets - 1);
    auto end = std::min(sequence.length, (position / kChunkRows + 1) * kChunkRows);
    if (bucket + 1 < cut.buckets) end = std::min(end, (bucket + 1) * cut.bucket_size);
    const bool is_first = position < cut.first;
    if (is_first) end = std::min(end, cut.first);
    (is_first ? first : body)
        .push_back({.row = static_cast<std::int32_t>(sequence.begin + position),
                    .rows = static_cast<std::int32_t>(end - position),
                    .position = static_cast<std::int32_t>(position),
                    .bucket = static_cast<std::int32_t>(bucket),
                    .sequence = number});
    position = end;
  }
}

}  // namespace

MomentChunks moment_chunks(std::span<const Sequence> sequences, const MomentCut& cut) {
  MomentChunks chunks;
  std::vector<MomentChunk> body;
  std::int32_t number = 0;
  for (const auto& sequence : sequences) cut_document(sequence, number++, cut, chunks.chunks, body);
  chunks.body = static_cast<std::int32_t>(chunks.chunks.size());
  chunks.chunks.insert(chunks.chunks.end(), body.begin(), body.end());
  const auto by_bucket = [](const MomentChunk& a, const MomentChunk& b) {
    return a.bucket < b.bucket;
  };
  std::stable_sort(chunks.chunks.begin(), chunks.chunks.begin() + chunks.body, by_bucket);
  std::stable_sort(chunks.chunks.begin() + chunks.body, chunks.chunks.end(), by_bucket);
  return chunks;
}

MomentWork moment_work(const MomentChunks& chunks, std::int64_t buckets, std::int64_t heads) {
  const auto count = static_cast<std::int32_t>(chunks.chunks.size());
  const auto length =
      static_cast<std::int32_t>(std::max<std::int64_t>(1, (count * heads + kBlocks - 1) / kBlocks));
  MomentWork work;
  work.buckets.resize(static_cast<std::size_t>(buckets));
  for (std::int32_t begin = 0; begin < count;) {
    const auto bucket = chunks.chunks[static_cast<std::size_t>(begin)].bucket;
    const bool is_first = begin < chunks.body;
    auto end = begin;
    while (end < (is_first ? chunks.body : count) &&
           chunks.chunks[static_cast<std::size_t>(end)].bucket == bucket)
      ++end;
    const auto segment = static_cast<std::int32_t>(work.segments.size());
    // First tokens of a document are few: use more and shorter segments.
    const auto step = is_first ? std::max(1, length / kFirstShare) : length;
    for (auto from = begin; from < end; from += step)
      work.segments.push_back({from, std::min(from + step, end)});
    const auto segment_end = static_cast<std::int32_t>(work.segments.size());
    auto& of_bucket = work.buckets[static_cast<std::size_t>(bucket)];
    (is_first ? of_bucket.first_chunks : of_bucket.body_chunks) = {begin, end};
    (is_first ? of_bucket.first_segments : of_bucket.body_segments) = {segment, segment_end};
    if (is_first) work.body = segment_end;
    begin = end;
  }
  return work;
}

void sum_moments(const MomentArguments& arguments, cudaStream_t stream) {
  QKSCOPE_ASSERT(arguments.record.dim > 0 && 2 * arguments.record.pairs <= arguments.record.dim);
  if (arguments.segment_count == 0) return;
  if (moments_fit_matrix_units(arguments))
    sum_moments_16bit(arguments, stream);
  else
    sum_moments_plain(arguments, stream);
}

}  // namespace qkscope::cuda
