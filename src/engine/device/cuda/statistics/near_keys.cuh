// Near-key pass over the scores: attention of each query to the first and to the most recent keys.
#pragma once

#include "engine/device/cuda/statistics/statistics_scores.cuh"

namespace qkscope::cuda {

constexpr int kMostBands = 13;  // windows up to 4,096
constexpr int kSinks = 4;

template <typename T, typename Shape>
class NearKeyPass {
 public:
  static constexpr int kBlocks = sizeof(T) == 2 ? 3 : 1;
  using Options = NearKeyOptions;
  struct SharedStorage {
    float bands[Shape::kRows][kMostBands];
  };

  __device__ NearKeyPass(const ScoreArguments& a, const Options& options,
                         const ScoreThreadBlock& block, SharedStorage& memory)
      : a_(a),
        options_(options),
        block_(block),
        weights_(a, block),
        bands_(memory.bands + (block.row - block.tile.first)) {
    for (int i = threadIdx.x % 32; i < Shape::kWarpRows * kMostBands; i += 32)
      bands_[i / kMostBands][i % kMostBands] = 0;
    __syncwarp();
  }

  __device__ int first_key() const { return 0; }
  __device__ int first_key_of_next_tile(int key) const {
    const int next = key + Shape::kKeys;
    const int last = max(0, block_.tile.first - options_.reach + 1) / Shape::kKeys * Shape::kKeys;
    return next < max(options_.stream_first, kSinks) ? next : max(next, last);
  }

  __device__ void add_tile(ScoreFragments<Shape>& p, int key) {
    const int nearest = block_.row - (key + Shape::kKeys - 1);
    const int farthest = block_.row + Shape::kWarpRows - 1 - key;
    if (nearest > options_.reach && key >= max(options_.stream_first, kSinks)) return;
    const bool all_seen = nearest >= 0 && farthest < block_.window;
    const bool all_stream =
        key + Shape::kKeys <= options_.stream_first || farthest < options_.stream_last;
    RowMasses masses;
    if (all_seen && all_stream)
      compute_weights<true>(p, masses, key);
    else
      compute_weights<false>(p, masses, key);
    add_band_masses(p, masses, key, nearest, farthest);
    if (key == 0) store_sink_weights(p);
    if (nearest <= 1) store_self_and_previous_weights(p, key);
  }

  __device__ void begin_tile() {}
  __device__ void skip_tile(int) {}

  __device__ void store_statistics() {
    const int lane = threadIdx.x % 32;
    for_each_block_row<Shape>(block_, [&](int band, int half, int position) {
      const float stream = quad_sum(stream_[band][half]);
      if (lane % 4 != 0) return;
      store_value(column_index(NearKeyColumn::stream), position, stream);
      if (position == 0) store_value(column_index(NearKeyColumn::prev), 0, 0.0f);
    });
    __syncwarp();
    for (int i = lane; i < Shape::kWarpRows * options_.bands; i += 32) {
      const int row = i % Shape::kWarpRows, band = i / Shape::kWarpRows;
      store_value(column_index(NearKeyColumn::near) + band, block_.row + row, bands_[row][band]);
    }
  }

 private:
  using RowMasses = float[Shape::kBands][2];  // attention mass of each row of a lane

  // Replaces scores by weights.
  template <bool kAllSeenAndStream>
  __device__ __forceinline__ void compute_weights(ScoreFragments<Shape>& p, RowMasses& masses,
                                                  int key) {
    for_each_block_row<Shape>(block_, [&](int band, int half, int position) {
      float mass = 0, streamed = 0;
      for_each_lane_column<Shape::kKeys>([&](int n, int i) {
        auto& value = p[band][n][2 * half + i];
        const float weight = exp2_fast(weights_.log2_weight(value, band, half));
        if constexpr (kAllSeenAndStream) {
          value = weight;
        } else {
          const int at = key + fragment_key_column(n, i), distance = position - at;
          value = distance >= 0 && distance < block_.window ? weight : 0.0f;
          if (at < options_.stream_first || distance < options_.stream_last) streamed += value;
        }
        mass += value;
      });
      masses[band][half] = mass;
      stream_[band][half] += kAllSeenAndStream ? mass : streamed;
    });
  }

  __device__ void store_value(std::int64_t column, int position, float value) const {
    if (position >= block_.tile.length) return;
    a_.statistic(column, block_.head, block_.output_row(position)) = value;
  }

  // Adds the attention mass of a key tile to distance bands. A band is the set of query-key
  // distances with the same bit width. Most tiles lie within one band.
  __device__ void add_band_masses(const ScoreFragments<Shape>& p, const RowMasses& masses, int key,
                                  int nearest, int farthest) {
    const int first = bit_width(max(nearest, 0));
    const int last = min(bit_width(farthest), options_.bands - 1);
    for_each_block_row<Shape>(block_, [&](int band, int half, int position) {
      float left = masses[band][half];
      for (int width = first; width <= last; ++width) {
        const int end = 1 << width;  // first distance after the band
        const float beyond =
            farthest < end ? 0.0f : mass_up_to_column<Shape>(p, band, half, position - key - end);
        const float sum = quad_sum(left - beyond);
        if (threadIdx.x % 4 == 0) bands_[position - block_.row][width] += sum;
        left = beyond;
      }
    });
  }

  __device__ void store_sink_weights(const ScoreFragments<Shape>& p) const {
    const int pair = threadIdx.x % 4;
    if (pair >= kSinks / 2) return;
    for_each_block_row<Shape>(block_, [&](int band, int half, int position) {
#pragma unroll
      for (int i = 0; i < 2; ++i)
        store_value(column_index(NearKeyColumn::sink_0) + 2 * pair + i, position,
                    p[band][0][2 * half + i]);
    });
  }

  __device__ void store_self_and_previous_weights(const ScoreFragments<Shape>& p, int key) const {
    for_each_block_row<Shape>(block_, [&](int band, int half, int position) {
      for_each_lane_column<Shape::kKeys>([&](int n, int i) {
        const int distance = position - key - fragment_key_column(n, i);
        const float value = p[band][n][2 * half + i];
        if (distance == 0) store_value(column_index(NearKeyColumn::self), position, value);
        if (distance == 1) store_value(column_index(NearKeyColumn::prev), position, value);
      });
    });
  }

  const ScoreArguments& a_;
  const Options& options_;
  const ScoreThreadBlock& block_;
  SoftmaxNormalizer<Shape> weights_;
  float (*bands_)[kMostBands];  // attention mass, (rows of the warp, distance bands)
  float stream_[Shape::kBands][2] = {};
};

}  // namespace qkscope::cuda
