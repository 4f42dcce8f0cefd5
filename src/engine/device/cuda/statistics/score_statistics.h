// Near-key and all-key attention statistics (groups B and C) of a run: buffers and launches of the
// kernels, and transfer of their results to the host.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/device/backend.h"
#include "engine/device/cuda/attention/attention.h"
#include "engine/device/cuda/memory/device_memory.h"
#include "engine/device/cuda/statistics/statistics_scores.h"
#include "engine/ops/row_kernels.h"

namespace qkscope::cuda {

class ScoreStatistics {
 public:
  // Per-query statistics are stored for as many heads at a time as fit into `most_value_bytes`.
  ScoreStatistics(HostTransfers& transfers, cudaStream_t stream,
                  std::int64_t most_value_bytes = std::int64_t{96} << 20)
      : transfers_(transfers), stream_(stream), most_value_bytes_(most_value_bytes) {}

  void begin_batch(const Batch& batch);

  // Returns the buffer that attention fills with the log-sum-exp and maximum of each row of scores.
  SoftmaxRowStats reserve_row_stats(std::int64_t heads);
  // Computes the log-sum-exp and maximum of each row of scores if the attention kernel does not.
  void compute_row_stats(const QueriesAndKeys& source);

  // Copies the log-sum-exp and maximum of each row to the host, in the format of CPU attention.
  std::vector<rows::RunningSoftmax> fetch_running_softmax(const QueriesAndKeys& source) const;

  // Adds the attention statistics of a layer whose log-sum-exps and maxima are known. `sink` must
  // stay valid until the results are delivered.
  void add_layer(const QueriesAndKeys& source, const AttentionRequest& request,
                 AttentionConsumer& sink);

 private:
  void prepare_tiles(const QueriesAndKeys& source);
  void prepare_document_buckets(const AttentionRequest& request);
  ScoreArguments make_arguments(const QueriesAndKeys& source) const;
  // Processes a few heads at a time: compute(sums) stores the statistics of each query, then a
  // second stream sums them by position bucket, while the main stream continues with the layer.
  template <typename Compute>
  void sum_by_bucket(BucketSumArguments sums, std::int64_t most_heads, const Compute& compute);
  void add_all_key_statistics(BucketSumArguments sums, const AttentionRequest& request,
                              std::int64_t* key_sums);

  HostTransfers& transfers_;
  cudaStream_t stream_;
  GpuStream side_;
  GpuEvent on_main_, on_side_;  // recorded on stream_ and on side_; the other stream waits for them
  GpuEvent summed_;             // recorded on side_ after the values were summed by bucket
  std::int64_t most_value_bytes_;
  const Batch* batch_ = nullptr;

  // State of the current batch; device memory is reused from batch to batch.
  bool is_prepared_ = false;
  UploadBuffer tiles_;           // DocumentRowTile
  UploadBuffer key_tiles_;       // DocumentRowTile, for the all-keys kernel
  UploadBuffer sampled_blocks_;  // SampledQueryBlock
  UploadBuffer token_rows_;      // RepeatedTokenRow
  UploadBuffer token_tiles_;     // RepeatedTokenTile
  // Null until prepare_document_buckets(). Shared, because pending result transfers refer to it.
  std::shared_ptr<const std::vector<DocumentBucket>> cells_;
  UploadBuffer device_cells_;

  DeviceMemory lse_, largest_;  // float (rows, heads)
  DeviceMemory values_;         // float (columns, some heads, output rows)
  DeviceMemory bins_;           // scratch of the all-key pass
};

}  // namespace qkscope::cuda
