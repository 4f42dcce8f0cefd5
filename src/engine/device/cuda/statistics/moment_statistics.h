// Moments (statistics group A) of a run: buffers and launches of the kernels, and transfer of their
// results to the host.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/device/backend.h"
#include "engine/device/cuda/memory/activation_copies.h"
#include "engine/device/cuda/memory/device_memory.h"
#include "engine/device/cuda/statistics/statistics_moments.h"
#include "engine/statistics/moments.h"

namespace qkscope::cuda {

MomentChunks split_sequences_into_chunks(std::span<const Sequence> sequences,
                                         const MomentPartition& partition);
// Chooses the segment length so that all heads together yield a few hundred thread blocks.
// If `fits` (can_use_tensor_cores()), tensor cores sum long chunks; else float64 sums all segments.
MomentSchedule schedule_moments(const MomentChunks& chunks, std::int64_t buckets,
                                std::int64_t heads, bool fits);

class MomentStatistics {
 public:
  MomentStatistics(HostTransfers& transfers, cudaStream_t stream)
      : transfers_(transfers), stream_(stream) {}

  void begin_batch(const Batch& batch);
  // Adds x (rows of the batch, heads, d_head). `request` and `sink` must stay valid until the
  // results are delivered.
  void add(const ActivationView& x, const MomentRequest& request, MomentConsumer& sink);

 private:
  // Chunks and schedule of one batch for a given row partition and number of heads. Shared with
  // result transfers in flight.
  struct MomentBatchPlan {
    MomentChunks chunks;
    ExactPositionSums positions[2];  // of the first tokens, and of the body tokens
    std::vector<std::int64_t> bucket_rows;
    MomentSchedule schedule;
  };
  // A batch plan on the GPU. The device memory is reused from batch to batch.
  struct UploadedMomentPlan {
    std::shared_ptr<const MomentBatchPlan> plan;  // null: not built for this batch yet
    UploadBuffer chunks;                          // MomentChunk
    UploadBuffer segments;                        // MomentSegment
    UploadBuffer float64_segments;                // std::int32_t
    UploadBuffer buckets;                         // BucketSegments
  };

  const UploadedMomentPlan& find_or_make_plan(const MomentRequest& request, bool fits);
  // Returns the host buffer for moments of this shape. The buffer is reused, because allocating it
  // costs more than filling it.
  LayerMoments& moments_buffer(const MomentShape& shape);
  // Allocates the buffers for the sums of segments and sets the pointers to them.
  void reserve_segment_sums(MomentArguments& sums, bool fits);
  void sum_moments(const MomentArguments& sums, const MomentRequest& request,
                   const UploadedMomentPlan& uploaded, std::byte* result);
  void enqueue_delivery(const MomentRequest& request, std::shared_ptr<const MomentBatchPlan> plan,
                        bool finds_shift, MomentConsumer& sink);

  HostTransfers& transfers_;
  cudaStream_t stream_;
  GpuStream side_;
  GpuEvent on_main_, on_side_;  // recorded on stream_ and on side_; the other stream waits for them
  const Batch* batch_ = nullptr;
  PositionPrefixSums table_;
  // Plans, keyed by row partition, number of heads, and whether tensor cores sum long chunks.
  std::map<std::tuple<MomentPartition, std::int64_t, bool>, UploadedMomentPlan> plans_;
  std::vector<std::pair<MomentShape, std::unique_ptr<LayerMoments>>> moments_;
  // Sums of each segment (MomentArguments), in use until the event combined_ completes.
  DeviceMemory records_, triangles_, fragments_;
  GpuEvent combined_;
};

}  // namespace qkscope::cuda
