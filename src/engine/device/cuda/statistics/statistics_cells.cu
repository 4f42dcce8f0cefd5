// Sums attention statistics of individual queries over each cell (document, position bucket).
#include <cmath>

#include "engine/device/cuda/elements.cuh"
#include "engine/device/cuda/statistics/statistics_scores.h"

namespace qkscope::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kSinkRows = 64;         // alpha columns use queries at positions below this
constexpr double kLeastKept = 1e-30;  // lower bound of a kept mass, so that its -ln is finite

// One row of one head.
struct ScoreRow {
  const ScoreArguments& a;
  int head;
  std::int64_t row;
  int position;
  std::int64_t output_row = row;

  __device__ float stored_value(std::int64_t column) const {
    return a.statistic(column, head, output_row);
  }
  __device__ float lse() const { return a.row_stats.lse[row * a.n_heads + head]; }
  __device__ float largest_logit() const {
    return a.row_stats.largest[row * a.n_heads + head] * a.scale;
  }

  // Returns true if a kernel stores the statistics column, false if it is derived from stored ones.
  __device__ static bool stores_column(const AttentionColumnLayout& layout, std::int64_t column) {
    if (column == layout.sink_above_half_column()) return false;
    if (column >= layout.near_key_column_count())
      return column != layout.perplexity_column() && column != layout.normalized_entropy_column() &&
             (column < layout.kept_key_mass_column(0) ||
              (column - layout.kept_key_mass_column(0)) % 2 == 0);
    return column < column_index(NearKeyColumn::sink_4) ||
           (column > column_index(NearKeyColumn::sink_4) &&
            column < column_index(NearKeyColumn::max_logit)) ||
           column >= column_index(NearKeyColumn::near);
  }

  // Returns the value of a statistics column, which is stored or derived from stored columns.
  __device__ double column_value(std::int64_t column) const {
    const auto& layout = a.layout;
    if (column == layout.sink_above_half_column())
      return position >= kSinkAboveHalfFrom &&
                     stored_value(column_index(NearKeyColumn::sink_0)) > 0.5f
                 ? 1
                 : 0;
    if (column < layout.near_key_column_count())
      return near_key_value(static_cast<NearKeyColumn>(column), column);
    const auto i = static_cast<double>(position);
    if (column == layout.perplexity_column())
      return exp(static_cast<double>(stored_value(layout.entropy_column())));
    if (column == layout.normalized_entropy_column())
      return position == 0 ? 0.0 : stored_value(layout.entropy_column()) / log(i + 1);
    if (column >= layout.kept_key_mass_column(0) &&
        (column - layout.kept_key_mass_column(0)) % 2 == 1)
      return -log(fmax(kLeastKept, static_cast<double>(stored_value(column - 1))));
    return stored_value(column);
  }

 private:
  __device__ double near_key_value(NearKeyColumn which, std::int64_t column) const {
    const auto sink = [&](int key) {
      return stored_value(column_index(NearKeyColumn::sink_0) + key);
    };
    switch (which) {
      case NearKeyColumn::sink_4:
        return static_cast<double>(sink(0)) + sink(1) + sink(2) + sink(3);
      case NearKeyColumn::max_logit:
        return largest_logit();
      case NearKeyColumn::top1:
        return exp2f(fmaf(largest_logit(), kLog2E, -lse()));
      case NearKeyColumn::lse:
        return static_cast<double>(lse()) * kLn2;
      case NearKeyColumn::prev_first:
        return position == 1 ? sink(0) : 0.0f;
      case NearKeyColumn::alpha_0:
      case NearKeyColumn::alpha_1:
      case NearKeyColumn::alpha_2:
      case NearKeyColumn::alpha_3:
        return position < kSinkRows
                   ? sink(static_cast<int>(column - column_index(NearKeyColumn::alpha_0)))
                   : 0.0f;
      default:
        return stored_value(column);
    }
  }
};

// Sums statistics columns over the rows of each cell (document, bucket); each warp sums one column
// of one cell and head.
__global__ void __launch_bounds__(kThreads) sum_cells_kernel(const BucketSumArguments arguments) {
  const auto& a = arguments.scores;
  const auto cell = arguments.cells[blockIdx.x];
  const int head = static_cast<int>(a.first_head) + static_cast<int>(blockIdx.y);
  const int lane = threadIdx.x % 32;
  const auto number = (std::int64_t{blockIdx.z} * kThreads + threadIdx.x) / 32;
  if (number >= a.columns) return;
  const bool is_last = a.first_column == 0 && number == a.layout.near_key_column_count();
  const auto column = is_last ? a.layout.sink_above_half_column() : a.first_column + number;
  double sum = 0, square = 0;
  float largest = -INFINITY;
  const auto add = [&](double value, double weight = 1) {
    sum += weight * value;
    square += weight * value * value;
  };
  if (arguments.blocks != nullptr) {
    const auto* blocks = arguments.blocks + blockIdx.y * arguments.block_count + cell.block;
    for (int row = cell.begin + lane; row < cell.end; row += 32) {
      const int position = cell.position + row - cell.begin;
      const auto block = blocks[position / kSampledQueries];
      if (block.weight > 0)
        add(ScoreRow{a, head, row, position, block.output_row + position}.column_value(column),
            block.weight);
    }
  } else if (ScoreRow::stores_column(a.layout, column)) {  // most columns: many rows at once
    const float* values = &a.statistic(column, head, 0);
#pragma unroll 8
    for (int row = cell.begin + lane; row < cell.end; row += 32) add(values[row]);
  } else {
#pragma unroll 4
    for (int row = cell.begin + lane; row < cell.end; row += 32) {
      const double value =
          ScoreRow{a, head, row, cell.position + row - cell.begin}.column_value(column);
      add(value);
      largest = fmaxf(largest, static_cast<float>(value));
    }
  }
  sum = warp_sum(sum);
  square = warp_sum(square);
  const auto out = blockIdx.x * a.n_heads + head;
  if (lane == 0) {
    arguments.sum[out * a.layout.columns() + column] = sum;
    arguments.square[out * a.layout.columns() + column] = square;
  }
  largest = warp_max(largest);
  if (lane == 0 && column == column_index(NearKeyColumn::max_logit))
    arguments.max_logit[out] = largest;
}

}  // namespace

void sum_document_buckets(const BucketSumArguments& a, cudaStream_t stream) {
  if (a.cell_count == 0) return;
  const auto blocks = (a.scores.columns * 32 + kThreads - 1) / kThreads;
  sum_cells_kernel<<<dim3(static_cast<unsigned>(a.cell_count),
                          static_cast<unsigned>(a.scores.heads), static_cast<unsigned>(blocks)),
                     kThreads, 0, stream>>>(a);
  check_launch("sums of statistics");
}

}  // namespace qkscope::cuda
