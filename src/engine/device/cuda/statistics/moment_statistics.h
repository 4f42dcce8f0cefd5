// Moments (statistics group A) of a run: buffers and launches of the kernels, and transfer of their
// results to the host.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/device/backend.h"
#include "engine/device/cuda/memory/activation_copies.h"
#include "engine/device/cuda/memory/device_memory.h"
#include "engine/device/cuda/statistics/statistics_moments.h"
#include "engine/statistics/moments.h"

namespace qkscope::cuda {

MomentChunks cut_sequences_into_chunks(std::span<const Sequence> sequences,
                                       const MomentPartition& partition);
// Chooses the segment length so that all heads together make a few hundred thread blocks.
MomentSchedule schedule_moments(const MomentChunks& chunks, std::int64_t buckets,
                                std::int64_t heads);

class MomentStatistics {
 public:
  MomentStatistics(HostTransfers& results, cudaStream_t stream)
      : results_(results), stream_(stream) {}

  void begin_batch(const Batch& batch);
  // Adds x (rows of the batch, heads, d_head). `request` and `sink` must stay valid until the
  // results are delivered.
  void add(const DeviceView& x, const MomentRequest& request, MomentConsumer& sink);

 private:
  // Chunks and schedule of one batch, for one partition of its rows and one number of heads. Shared
  // with pending results.
  struct BatchPlan {
    MomentChunks chunks;
    ExactPositionSums positions[2];  // sums over first tokens, and over body tokens
    std::vector<std::int64_t> bucket_rows;
    MomentSchedule schedule;
  };
  // A batch plan on the GPU. The device memory is reused from batch to batch.
  struct UploadedPlan {
    std::shared_ptr<const BatchPlan> plan;  // null: not built for this batch yet
    UploadBuffer chunks;                    // MomentChunk
    UploadBuffer segments;                  // MomentSegment
    UploadBuffer buckets;                   // BucketSegments
  };

  const UploadedPlan& find_or_make_plan(const MomentRequest& request);
  // Returns the host buffer that a consumer reads. The buffer is reused, because allocating it
  // costs more than filling it.
  LayerMoments& moments_buffer(const MomentShape& shape);
  // Turns the sums of segments and chunks into centred moments in `result`, on the GPU.
  void center_sums(const MomentArguments& sums, const MomentRequest& request,
                   const UploadedPlan& uploaded, std::byte* result);
  void send_result(const MomentRequest& request, std::shared_ptr<const BatchPlan> plan,
                   bool finds_shift, MomentConsumer& sink);

  HostTransfers& results_;
  cudaStream_t stream_;
  const Batch* batch_ = nullptr;
  PositionPrefixSums table_;
  // By partition and number of heads.
  std::map<std::pair<MomentPartition, std::int64_t>, UploadedPlan> plans_;
  std::vector<std::pair<MomentShape, std::unique_ptr<LayerMoments>>> moments_;
  DeviceMemory records_;     // double, per segment
  DeviceMemory chunk_sums_;  // float
};

}  // namespace qkscope::cuda
