// All-keys attention statistics in one pass over the scores: entropy, distances, concentration of
// the attention of each query, and the attention mass that each key receives.
#pragma once

#include <cstdint>

#include "engine/device/cuda/statistics/mass_bins.cuh"
#include "engine/device/cuda/statistics/statistics_scores.cuh"

namespace qkscope::cuda {

constexpr int kWidths = kDistances;
constexpr int kSumTiles = 16;       // tiles after which float32 sums are flushed to float64
constexpr float kUnseen = -200.0f;  // log2 weight of masked keys: 2^-200 is 0 in float32

// Tile shapes: LargeTileShape for 16-bit types with head sizes up to 128, SmallTileShape for
// everything else. Each warp has one band of 16 queries, so 16-bit queries fit into registers.
template <typename T, int kWidth>
using LargeTileShape = ScoreTileShape<T, kWidth, 8, 1>;
template <typename T, int kWidth>
using SmallTileShape = ScoreTileShape<T, kWidth, 2, 1>;

template <typename T, typename Shape>
class AllKeysPass {
 public:
  static constexpr int kBlocks = sizeof(T) == 2 && Shape::kWidth <= 128 ? 2 : 1;
  using Options = AllKeysArguments;
  struct SharedStorage {
    typename AttentionWeightHistogram<Shape>::SharedStorage bins;
    double entropy[Shape::kRows], distance[Shape::kRows];
    double masses[Shape::kRows][kWidths];
    float columns[2][Shape::kWarps][Shape::kKeys];
  };

  __device__ AllKeysPass(const ScoreArguments& a, const Options& options,
                         const ScoreThreadBlock& block, SharedStorage& memory)
      : a_(a),
        options_(options),
        block_(block),
        memory_(memory),
        weights_(a, block),
        lane_(threadIdx.x % 32),
        warp_(threadIdx.x / 32),
        row_(block.row - block.tile.first),
        bins_(memory.bins),
        kept_(static_cast<HistogramBin*>(options.bins) +
              (blockIdx.x * Shape::kRows + row_) * std::int64_t{kBins}) {
    for (int i = lane_; i < 16; i += 32) memory.entropy[row_ + i] = memory.distance[row_ + i] = 0;
    for (int i = lane_; i < 16 * kWidths; i += 32)
      memory.masses[row_ + i / kWidths][i % kWidths] = 0;
    __syncwarp();
  }

  __device__ int first_key() const {
    return max(0, block_.tile.first - block_.window + 1) / Shape::kKeys * Shape::kKeys;
  }
  __device__ int first_key_of_next_tile(int key) const { return key + Shape::kKeys; }

  // Begins a key tile. Call after every warp has finished the previous tile.
  __device__ void begin_tile() {
    if (column_key_ >= 0) flush_column_sums();
    parity_ = 1 - parity_;
  }

  __device__ void skip_tile(int key) {
    column_key_ = options_.key_sums == nullptr ? -1 : key;
    for (int i = lane_; i < Shape::kKeys; i += 32) memory_.columns[parity_][warp_][i] = 0;
  }

  __device__ __forceinline__ void add_tile(ScoreFragments<Shape>& scores, int key) {
    column_key_ = options_.key_sums == nullptr ? -1 : key;
    const int nearest = block_.row - (key + Shape::kKeys - 1);
    const int farthest = block_.row + 15 - key;
    if (nearest >= 0 && farthest < block_.window)
      compute_weights<true>(scores, key);
    else
      compute_weights<false>(scores, key);
    add_distance_masses(scores, key, max(nearest, 0), farthest);
    if (column_key_ >= 0) store_column_sums(scores);
    if (++tiles_ % kSumTiles == 0) flush_sums();
    if (tiles_ % AttentionWeightHistogram<Shape>::kTiles == 0) flush_bins();
  }

  __device__ void store_statistics() {
    flush_sums();
    flush_bins();
    __syncthreads();
    flush_column_sums();
    if (lane_ < 16 && block_.row + lane_ < block_.tile.length) store_row_statistics(lane_);
    const int rows = min(16, block_.tile.length - block_.row);
    for (int row = 0; row < rows; row += AttentionMassBounds::kRows)
      store_mass_bounds(row, min(rows - row, AttentionMassBounds::kRows));
  }

 private:
  // Replaces scores by weights.
  template <bool kAllSeen>
  __device__ __forceinline__ void compute_weights(ScoreFragments<Shape>& scores, int key) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int from = block_.row + half * 8 + lane_ / 4 - key - lane_ % 4 * 2;  // distance
      float mass = 0, entropy = 0, offset = 0;
      for_each_lane_column<Shape::kKeys>([&](int n, int i) {
        auto& score = scores[0][n][2 * half + i];
        const int distance = from - n * 8 - i;
        const bool seen = kAllSeen || (distance >= 0 && distance < block_.window);
        const float x = seen ? weights_.log2_weight(score, 0, half) : kUnseen;
        const float p = exp2_fast(x);
        score = p;
        mass += p;
        entropy = fmaf(p, x, entropy);
        offset = fmaf(p, static_cast<float>(n * 8 + i), offset);
        if (seen) bins_.add_weight(half, p);
      });
      entropy_[half] -= entropy;
      distance_[half] += fmaf(mass, static_cast<float>(from), -offset);
      tile_mass_[half] = mass;
    }
  }

  // Adds the attention mass of a key tile to one sum per bit width of the query-key distance. Most
  // tiles span a single bit width, usually that of the previous tile.
  __device__ __forceinline__ void add_distance_masses(const ScoreFragments<Shape>& p, int key,
                                                      int nearest, int farthest) {
    const int least = min(bit_width(nearest), kWidths - 1);
    const int most = min(bit_width(farthest), kWidths - 1);
    if (least == most) {
      if (least != width_) flush_distance_masses();
      width_ = least;
#pragma unroll
      for (int half = 0; half < 2; ++half) mass_[half] += tile_mass_[half];
      return;
    }
    flush_distance_masses();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float left = tile_mass_[half];
      for (int width = least; width < most; ++width) {
        const float beyond = mass_up_to_column<Shape>(
            p, 0, half, block_.row + half * 8 + lane_ / 4 - key - (1 << width));
        add_distance_mass(half, width, left - beyond);
        left = beyond;
      }
      add_distance_mass(half, most, left);
    }
  }

  __device__ void add_distance_mass(int half, int width, float sum) {
    sum = quad_sum(sum);
    if (lane_ % 4 == 0) memory_.masses[row_ + half * 8 + lane_ / 4][width] += sum;
  }

  __device__ __forceinline__ void flush_distance_masses() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      add_distance_mass(half, width_, mass_[half]);
      mass_[half] = 0;
    }
  }

  __device__ __forceinline__ void flush_sums() {
    flush_distance_masses();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float entropy = quad_sum(entropy_[half]), distance = quad_sum(distance_[half]);
      entropy_[half] = distance_[half] = 0;
      if (lane_ % 4 != 0) continue;
      memory_.entropy[row_ + half * 8 + lane_ / 4] += entropy;
      memory_.distance[row_ + half * 8 + lane_ / 4] += distance;
    }
  }

  // Adds the histograms in shared memory to kept_, the histograms of all keys so far, and clears
  // the former. Adds half a unit per weight, the mean truncation error of the mantissas.
  __device__ void flush_bins() {
    __syncwarp();
#pragma unroll 8
    for (int i = lane_; i < 16 * kBins; i += 32) {
      const int bin = i % kBins;
      const auto taken = bins_.read_and_clear_bin(i / kBins, bin);
      const float units = taken.mass + 0.5f * static_cast<float>(taken.count);
      const auto before = is_kept_ ? kept_[i] : HistogramBin{0, 0.0f};
      kept_[i] = {before.count + taken.count,
                  fmaf(units, exp2f(static_cast<float>(-kMassBits - 1 - bin / 2)), before.mass)};
    }
    is_kept_ = true;
    __syncwarp();
  }

  // Sums the weights of each key of the tile over the warp's rows, reducing over the lanes that
  // hold the same columns.
  __device__ __forceinline__ void store_column_sums(const ScoreFragments<Shape>& p) {
    constexpr int kValues = Shape::kKeys / 4;
    float v[kValues];
#pragma unroll
    for (int i = 0; i < kValues; ++i) v[i] = p[0][i / 2][i % 2] + p[0][i / 2][2 + i % 2];
    reduce_across_lanes<kValues / 2, 16>(v);
    reduce_across_lanes<kValues / 4, 8>(v);
    reduce_across_lanes<kValues / 8, 4>(v);
    // Index of the first value that this lane holds after the butterfly reduction.
    const int first = (lane_ & 16 ? kValues / 2 : 0) + (lane_ & 8 ? kValues / 4 : 0) +
                      (lane_ & 4 ? kValues / 8 : 0);
    float* const columns = memory_.columns[parity_][warp_];
#pragma unroll
    for (int i = 0; i < kValues / 8; ++i) {
      const int value = first + i;
      columns[value / 2 * 8 + lane_ % 4 * 2 + value % 2] = v[i];
    }
  }

  // Adds the tile's sums over all rows of the block to the attention mass of the keys. Sums are
  // integers, so the order of additions does not affect the result.
  __device__ void flush_column_sums() {
    const int key = threadIdx.x;
    if (key >= Shape::kKeys || column_key_ < 0 || column_key_ + key >= block_.end) return;
    float sum = 0;
    for (int i = 0; i < Shape::kWarps; ++i) sum += memory_.columns[parity_][i][key];
    constexpr double kUnits = 1099511627776.0;  // 2^40
    const auto at = block_.batch_row(column_key_ + key) * a_.n_heads + block_.head;
    atomicAdd(reinterpret_cast<unsigned long long*>(options_.key_sums + at),
              static_cast<unsigned long long>(__double2ll_rn(sum * kUnits)));
  }

  __device__ void store_value(int row, std::int64_t column, double value) const {
    a_.statistic(column, block_.head, block_.output_row(block_.row + row)) =
        static_cast<float>(value);
  }

  __device__ void store_row_statistics(int row) const {
    const auto& layout = a_.layout;
    // The weights sum to 1 up to the rounding error of log-sum-exp; division by `total` removes it.
    double total = 0;
    for (const double mass : memory_.masses[row_ + row]) total += mass;
    store_value(row, layout.entropy_column(),
                (memory_.entropy[row_ + row] / total + log2(total)) * static_cast<double>(kLn2));
    store_value(row, layout.distance_mean_column(), memory_.distance[row_ + row]);
    for (int width = 0; width < kWidths; ++width)
      store_value(row, layout.distance_band_column(width), memory_.masses[row_ + row][width]);
  }

  // Called by the whole warp.
  __device__ void store_mass_bounds(int first, int rows) {
    AttentionMassBounds bounds(bins_.shared_memory());  // reuses the memory of the empty bins
    for (int row = 0; row < rows; ++row) bounds.add_row(row, kept_ + (first + row) * kBins);
    __syncwarp();
    const int row = lane_ / 8, number = lane_ % 8;
    if (row < rows) {
      const auto& layout = a_.layout;
      constexpr double kShares[] = {kKeyShare[0], kKeyShare[1], kKeyShare[2]};
      constexpr std::int64_t kTops[] = {kTopKey[0], kTopKey[1], kTopKey[2], kTopKey[3], kTopKey[4]};
      const bool is_share = number < kKeyShares;
      const int k = is_share ? number : number - static_cast<int>(kKeyShares);
      const auto bracket = is_share ? bounds.key_count_for_share(row, kShares[k])
                                    : bounds.mass_of_top_keys(row, static_cast<int>(kTops[k]));
      const auto lower =
          is_share ? layout.key_count_lower_bound_column(k) : layout.top_mass_lower_bound_column(k);
      const auto upper =
          is_share ? layout.key_count_upper_bound_column(k) : layout.top_mass_upper_bound_column(k);
      store_value(first + row, lower, bracket.low);
      store_value(first + row, upper, bracket.high);
    }
    __syncwarp();
  }

  const ScoreArguments& a_;
  const Options& options_;
  const ScoreThreadBlock& block_;
  SharedStorage& memory_;
  SoftmaxNormalizer<Shape> weights_;
  int lane_, warp_;
  int row_;  // the warp's first row in the block
  AttentionWeightHistogram<Shape> bins_;
  HistogramBin* kept_;    // (16, kBins) histograms of the warp's rows over all keys
  bool is_kept_ = false;  // kept_ holds values
  int tiles_ = 0;
  int parity_ = 0;
  int column_key_ = -1;  // first key of the tile whose column sums are pending
  int width_ = 0;        // bit width of the distances in mass_
  float mass_[2] = {}, tile_mass_[2] = {}, entropy_[2] = {}, distance_[2] = {};
};

}  // namespace qkscope::cuda
