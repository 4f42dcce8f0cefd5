// Groups B and C of the passes of a run: memory and work of the kernels, and the way of their
// results to the host.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/device/backend.h"
#include "engine/device/cuda/attention/score_rows.h"
#include "engine/device/cuda/memory/device_memory.h"
#include "engine/device/cuda/statistics/row_sums.h"
#include "engine/device/cuda/statistics/statistics_results.h"
#include "engine/device/cuda/statistics/statistics_scores.h"
#include "engine/ops/row_kernels.h"

namespace qkscope::cuda {

class ScoreStatistics {
 public:
  ScoreStatistics(StatisticsResults& results, cudaStream_t stream)
      : results_(results), stream_(stream) {}

  void begin(const Batch& batch);

  // Memory for the sums of all rows of the batch, for attention to fill.
  RowSums row_sums(std::int64_t heads);
  // Fills it where attention does not.
  void find_row_sums(const ScoreSource& source);

  // The row sums on the host, as attention there keeps them.
  std::vector<rows::RunningSoftmax> fetch_row_sums(const ScoreSource& source) const;

  // With the row sums of the layer. Sink stays until the results are taken.
  void add(const ScoreSource& source, const AttentionRequest& request, AttentionSink& sink);

 private:
  void prepare(const ScoreSource& source);
  void prepare_cells(const AttentionRequest& request);
  ScoreArguments arguments(const ScoreSource& source) const;

  StatisticsResults& results_;
  cudaStream_t stream_;
  const Batch* batch_ = nullptr;

  // Of the batch; memory on the GPU stays from batch to batch.
  bool is_prepared_ = false;
  std::int64_t tile_count_ = 0;
  std::int64_t token_tile_count_ = 0;
  std::int64_t key_tile_count_ = 0;
  DeviceBlock tiles_;                                  // RowTile
  DeviceBlock key_tiles_;                              // RowTile, of the pass over all keys
  DeviceBlock token_rows_;                             // TokenRow
  DeviceBlock token_tiles_;                            // TokenTile
  std::shared_ptr<const std::vector<RowCell>> cells_;  // null: not cut yet. Results hold on to it
  DeviceBlock device_cells_;

  DeviceBlock lse_, largest_;  // float (rows, heads)
  DeviceBlock values_;         // float (columns, some heads, rows)
  DeviceBlock bins_;           // scratch of group C
};

}  // namespace qkscope::cuda
