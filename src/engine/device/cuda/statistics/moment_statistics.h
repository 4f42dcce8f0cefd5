// Group A of the passes of a run: memory and work of the kernels, and the way of their results to
// the host.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/device/backend.h"
#include "engine/device/cuda/memory/activation_copies.h"
#include "engine/device/cuda/memory/device_memory.h"
#include "engine/device/cuda/statistics/statistics_moments.h"
#include "engine/device/cuda/statistics/statistics_results.h"
#include "engine/statistics/positions.h"

namespace qkscope::cuda {

class MomentStatistics {
 public:
  MomentStatistics(StatisticsResults& results, cudaStream_t stream)
      : results_(results), stream_(stream) {}

  void begin(const Batch& batch);
  // x (rows of the batch, heads, d_head). Request and sink stay until the results are taken.
  void add(const DeviceView& x, const MomentRequest& request, MomentSink& sink);

 private:
  // How the rows of the batch are cut. Results on their way hold on to it.
  struct Cut {
    MomentChunks chunks;
    ExactPositions positions[2];  // of the first tokens, and of the others
    std::vector<std::int64_t> bucket_rows;
  };
  // Memory on the GPU stays from batch to batch.
  struct CutOnDevice {
    std::shared_ptr<const Cut> cut;  // null: not made for this batch yet
    DeviceBlock chunks;              // MomentChunk
  };
  struct Work {
    bool is_made = false;  // for this batch
    MomentWork work;
    DeviceBlock segments;  // MomentSegment
    DeviceBlock buckets;   // BucketWork
  };
  using CutKey = std::tuple<std::int64_t, std::int64_t, std::int64_t>;

  const CutOnDevice& cut_for(const MomentRequest& request);
  const Work& work_for(const MomentRequest& request, const Cut& cut);
  // What a sink is shown, in memory that stays: taking it anew costs more than filling it.
  LayerMoments& moments_of(const MomentShape& shape);

  StatisticsResults& results_;
  cudaStream_t stream_;
  const Batch* batch_ = nullptr;
  PositionTable table_;
  std::map<CutKey, CutOnDevice> cuts_;
  std::map<std::pair<CutKey, std::int64_t>, Work> works_;  // by cut and heads
  std::vector<std::pair<MomentShape, std::unique_ptr<LayerMoments>>> moments_;
  DeviceBlock records_;     // double, of the segments
  DeviceBlock chunk_sums_;  // float
};

}  // namespace qkscope::cuda
