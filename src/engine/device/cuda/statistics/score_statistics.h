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
  // Per-row values are stored for as many heads at a time as fit `most_value_bytes` (plus 25 %).
  ScoreStatistics(HostTransfers& results, cudaStream_t stream,
                  std::int64_t most_value_bytes = std::int64_t{128} << 20)
      : results_(results), stream_(stream), most_value_bytes_(most_value_bytes) {}

  void begin_batch(const Batch& batch);

  // Returns the buffer that attention fills with log-sum-exp and maximum of each row of scores.
  SoftmaxRowSums reserve_row_sums(std::int64_t heads);
  // Computes log-sum-exp and maximum of each row of scores where attention does not provide them.
  void compute_row_sums(const QueriesAndKeys& source);

  // Copies the row sums (log-sum-exp, maximum) to the host, in the format of the CPU attention.
  std::vector<rows::RunningSoftmax> fetch_row_sums(const QueriesAndKeys& source) const;

  // Adds the attention statistics of a layer whose row sums are known. `sink` must stay valid until
  // the results are delivered.
  void add(const QueriesAndKeys& source, const AttentionRequest& request, AttentionConsumer& sink);

 private:
  void prepare_tiles(const QueriesAndKeys& source);
  void prepare_bucket_cells(const AttentionRequest& request);
  ScoreArguments make_arguments(const QueriesAndKeys& source) const;
  // For some heads at a time: compute(sums) stores values per row, which are summed by bucket.
  template <typename Compute>
  void sum_by_heads(BucketCellSumArguments sums, std::int64_t most_heads, const Compute& compute);
  void add_all_keys(BucketCellSumArguments sums, const AttentionRequest& request,
                    std::int64_t* key_sums);

  HostTransfers& results_;
  cudaStream_t stream_;
  std::int64_t most_value_bytes_;
  const Batch* batch_ = nullptr;

  // State of the current batch; device memory is reused from batch to batch.
  bool is_prepared_ = false;
  UploadBuffer tiles_;           // DocumentRowTile
  UploadBuffer key_tiles_;       // DocumentRowTile, of the pass over all keys
  UploadBuffer sampled_blocks_;  // SampledBlock
  UploadBuffer token_rows_;      // RepeatedTokenRow
  UploadBuffer token_tiles_;     // RepeatedTokenTile
  // Null until prepare_bucket_cells(). Shared, because pending result transfers refer to it.
  std::shared_ptr<const std::vector<DocumentBucketCell>> cells_;
  UploadBuffer device_cells_;

  DeviceMemory lse_, largest_;  // float (rows, heads)
  DeviceMemory values_;         // float (columns, some heads, value rows)
  DeviceMemory bins_;           // scratch of the all-key pass
};

}  // namespace qkscope::cuda
