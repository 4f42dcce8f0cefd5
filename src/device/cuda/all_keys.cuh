// Group C as a pass over scores: entropy, distances, how concentrated the mass of a row is, and the
// mass of each key.
#pragma once

#include <cstdint>

#include "device/cuda/statistics_scores.cuh"

namespace qkscope::cuda {

constexpr int kBins = kMassBins;
constexpr int kWidths = kDistances;
constexpr int kSumTiles = 16;  // float32 sums go to float64 after so many tiles
// A bin of a row is one word: how many weights, and the sum of their leading 12 bits.
constexpr int kCountShift = 22;
constexpr unsigned kMassMask = (1u << kCountShift) - 1;
constexpr int kMostCount = (1 << (32 - kCountShift)) - 1;
constexpr int kMassBits = 11;  // after the leading one

// One band of 16 rows to a warp, whose registers also hold the queries.
template <typename T, int kHeadWidth, int kBlockWarps>
struct AllKeysShape {
  static constexpr int kWidth = kHeadWidth;
  static constexpr int kWarps = kBlockWarps;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kBands = 1;
  static constexpr int kWarpRows = 16;
  static constexpr int kRows = kWarps * kWarpRows;
  static constexpr int kKeys = sizeof(T) == 2 && kWidth <= 128 ? 64 : 32;
  static constexpr int kRowBytes = ScoreShape<T, kWidth>::kRowBytes;
};
// For 16 bits and heads of up to 128; and everything else.
template <typename T, int kWidth>
using LargeShape = AllKeysShape<T, kWidth, 8>;
template <typename T, int kWidth>
using SmallShape = AllKeysShape<T, kWidth, 2>;

// A bin of a whole row.
struct MassBin {
  unsigned count;
  float mass;
};

struct AllKeysOptions {
  std::int64_t* key_sums;  // (rows, n_heads)
  MassBin* bins;           // (blocks, rows of a tile, kBins)
};

// Between which numbers the keys that hold a share of the mass lie, and the mass of the largest:
// the bins of one row, two to a lane of the warp, with what the bins before them hold.
class RowBins {
 public:
  __device__ explicit RowBins(const MassBin* bins) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      count_[i] = static_cast<int>(bins[2 * lane + i].count);
      mass_[i] = static_cast<double>(bins[2 * lane + i].mass);
    }
    int count = count_[0] + count_[1];
    double mass = mass_[0] + mass_[1];
    for (int distance = 1; distance < 32; distance *= 2) {
      const int more_count = __shfl_up_sync(kAllLanes, count, distance);
      const double more_mass = __shfl_up_sync(kAllLanes, mass, distance);
      if (lane < distance) continue;
      count += more_count;
      mass += more_mass;
    }
    keys_ = count - count_[0] - count_[1];
    held_ = mass - mass_[0] - mass_[1];
    // Smaller weights count as the least that fits into the last bin; it has what is left at most.
    if (lane == 31) mass_[1] = fmin(mass_[1], fmax(0.0, 1.0 - held_ - mass_[0]));
  }

  // Calls store(low, high) in one lane.
  template <typename Store>
  __device__ void keys_of_share(double share, Store store) const {
    in_bin(
        held_ + mass_[0] >= share, held_ + mass_[0] + mass_[1] >= share,
        [&](int bin, const Before& before, double count, double mass) {
          const double missing = share - before.mass;
          const double high = before.keys + fmin(count, fmax(1.0, ceil(missing * count / mass)));
          store(fmin(high, before.keys + fmax(1.0, ceil(missing / largest(bin)))), high);
        },
        [&](const Before& all) { store(all.keys, all.keys); });
  }

  template <typename Store>
  __device__ void mass_of_top(int top, Store store) const {
    in_bin(
        keys_ + count_[0] >= top, keys_ + count_[0] + count_[1] >= top,
        [&](int bin, const Before& before, double count, double mass) {
          const double missing = top - before.keys, part = mass * missing / count;
          store(before.mass + part, before.mass + fmax(part, fmin(mass, missing * largest(bin))));
        },
        [&](const Before& all) { store(all.mass, all.mass); });
  }

 private:
  struct Before {
    double keys, mass;
  };

  __device__ static double largest(int bin) {
    return exp2(-0.5 * bin);
  }

  // The first bin that reaches what is looked for, or all of them where none does.
  template <typename Found, typename None>
  __device__ void in_bin(bool first_reaches, bool second_reaches, Found found, None none) const {
    const int lane = threadIdx.x % 32;
    const unsigned lanes = __ballot_sync(kAllLanes, second_reaches);
    if (lane != (lanes == 0 ? 31 : __ffs(static_cast<int>(lanes)) - 1)) return;
    if (lanes == 0)
      none(Before{static_cast<double>(keys_) + count_[0] + count_[1], held_ + mass_[0] + mass_[1]});
    else if (first_reaches)
      found(2 * lane, Before{static_cast<double>(keys_), held_}, count_[0], mass_[0]);
    else
      found(2 * lane + 1, Before{static_cast<double>(keys_) + count_[0], held_ + mass_[0]},
            count_[1], mass_[1]);
  }

  int count_[2];
  double mass_[2];
  int keys_;     // in the bins before
  double held_;  // by them
};

template <typename T, typename Shape>
class AllKeys {
 public:
  static constexpr int kBlocks = sizeof(T) == 2 && Shape::kWidth <= 128 ? 2 : 1;
  using Options = AllKeysOptions;
  struct Memory {
    double entropy[Shape::kRows], distance[Shape::kRows];
    double masses[Shape::kRows][kWidths];
    alignas(4 * kBins) unsigned bins[Shape::kRows][kBins];
    float columns[2][Shape::kWarps][Shape::kKeys];
  };

  __device__ AllKeys(const ScoreArguments& a, const Options& options, const ScoreBlock& block,
                     Memory& memory)
      : a_(a),
        options_(options),
        block_(block),
        memory_(memory),
        weights_(a, block),
        lane_(threadIdx.x % 32),
        warp_(threadIdx.x / 32),
        row_(block.row - block.tile.first),
        bins_(options.bins + (blockIdx.x * Shape::kRows + row_) * std::int64_t{kBins}) {
    for (int i = lane_; i < 16; i += 32) memory.entropy[row_ + i] = memory.distance[row_ + i] = 0;
    for (int i = lane_; i < 16 * kWidths; i += 32)
      memory.masses[row_ + i / kWidths][i % kWidths] = 0;
    for (int i = lane_; i < 16 * kBins; i += 32) memory.bins[row_ + i / kBins][i % kBins] = 0;
    __syncwarp();
  }

  __device__ int first_key() const {
    return max(0, block_.tile.first - block_.window + 1) / Shape::kKeys * Shape::kKeys;
  }
  __device__ int next_key(int key) const { return key + Shape::kKeys; }

  // Every warp is done with the tile before.
  __device__ void begin_tile() {
    if (column_key_ >= 0) add_columns();
    parity_ = 1 - parity_;
  }

  __device__ void skip(int key) {
    column_key_ = key;
    for (int i = lane_; i < Shape::kKeys; i += 32) memory_.columns[parity_][warp_][i] = 0;
  }

  __device__ void add(ScoreFragments<Shape>& scores, int key) {
    column_key_ = key;
    const int nearest = block_.row - (key + Shape::kKeys - 1);
    const int farthest = block_.row + 15 - key;
    if (nearest >= 0 && farthest < block_.window)
      add_rows<true>(scores, key);
    else
      add_rows<false>(scores, key);
    add_masses(scores, key, max(nearest, 0), farthest);
    store_columns(scores);
    if (++tiles_ % kSumTiles == 0) end_sums();
    if (tiles_ % kBinTiles == 0) end_bins();
  }

  __device__ void finish() {
    end_sums();
    end_bins();
    __syncthreads();
    add_columns();
    if (lane_ < 16 && block_.row + lane_ < block_.tile.length) store_row(lane_);
    const int rows = min(16, block_.tile.length - block_.row);
    for (int row = 0; row < rows; ++row) store_bins(row);
  }

 private:
  static constexpr int kBinTiles = kMostCount / Shape::kKeys;

  // Weights take the place of scores.
  template <bool kAllSeen>
  __device__ __forceinline__ void add_rows(ScoreFragments<Shape>& scores, int key) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int from = block_.row + half * 8 + lane_ / 4 - key - lane_ % 4 * 2;  // distance
      const auto bins = first(row_ + half * 8 + lane_ / 4);
      float mass = 0, entropy = 0, offset = 0;
#pragma unroll
      for (int n = 0; n < Shape::kKeys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          auto& score = scores[0][n][2 * half + i];
          const int distance = from - n * 8 - i;
          if (!kAllSeen && (distance < 0 || distance >= block_.window)) {
            score = 0;
            continue;
          }
          const float x = weights_.log2_weight(score, 0, half);
          const float p = exp2_fast(x);
          score = p;
          mass += p;
          entropy = fmaf(p, x, entropy);
          offset = fmaf(p, static_cast<float>(n * 8 + i), offset);
          add_to_bin(bins, p);
        }
      entropy_[half] -= entropy;
      distance_[half] += fmaf(mass, static_cast<float>(from), -offset);
      tile_mass_[half] = mass;
    }
  }

  // Bin b holds floor(-2 log2 p) = b, the last has the rest: the exponent of p^2 tells it. A power
  // of two, which is the largest of its bin, is taken as the number below it; and so is a weight
  // that exceeds 1 by the rounding of the log-sum-exp. `bins` is the row's first() in shared
  // memory.
  __device__ static __forceinline__ void add_to_bin(std::uint32_t bins, float p) {
    constexpr int kBelowOne = 0x3f7fffff, kLeast = 0x2f800001;  // 1 - 2^-24, 2^-32 + 2^-55
    const int bits = max(__viaddmin_s32(__float_as_int(p), -1, kBelowOne), kLeast);
    const float inside = __int_as_float(bits);
    const std::uint32_t square = __float_as_uint(inside * inside);
    const std::uint32_t address = (square >> 21 & 4 * (kBins - 1)) ^ bins;
    constexpr unsigned kOne = (1u << kCountShift) + (1u << kMassBits);
    constexpr unsigned kMask = (1u << kMassBits) - 1;
    const unsigned word = kOne | (static_cast<unsigned>(bits) >> (23 - kMassBits) & kMask);
    asm volatile("red.shared.add.u32 [%0], %1;" ::"r"(address), "r"(word) : "memory");
  }

  // Bins lie in the order of that exponent, in each of eight rows in other banks than in the rest.
  __device__ static int place_of(int row, int bin) {
    return ((126 - bin) % kBins) ^ (row % 8 * 4);
  }
  __device__ std::uint32_t first(int row) const {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(memory_.bins[row])) ^ row % 8 * 16;
  }

  // Mass by the bit width of the distance. Most tiles lie in one width, as the one before did.
  __device__ void add_masses(const ScoreFragments<Shape>& p, int key, int nearest, int farthest) {
    const int least = min(bit_width(nearest), kWidths - 1);
    const int most = min(bit_width(farthest), kWidths - 1);
    if (least == most) {
      if (least != width_) end_masses();
      width_ = least;
      for (int half = 0; half < 2; ++half) mass_[half] += tile_mass_[half];
      return;
    }
    end_masses();
    for (int width = least; width <= most; ++width) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int from = block_.row + half * 8 + lane_ / 4 - key - lane_ % 4 * 2;
        float sum = 0;
#pragma unroll
        for (int n = 0; n < Shape::kKeys / 8; ++n)
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const int distance = max(from - n * 8 - i, 0);  // what lies behind has no weight
            if (min(bit_width(distance), kWidths - 1) == width) sum += p[0][n][2 * half + i];
          }
        add_mass(half, width, sum);
      }
    }
  }

  __device__ void add_mass(int half, int width, float sum) {
    sum = quad_sum(sum);
    if (lane_ % 4 == 0) memory_.masses[row_ + half * 8 + lane_ / 4][width] += sum;
  }

  __device__ void end_masses() {
    for (int half = 0; half < 2; ++half) {
      add_mass(half, width_, mass_[half]);
      mass_[half] = 0;
    }
  }

  __device__ void end_sums() {
    end_masses();
    for (int half = 0; half < 2; ++half) {
      const float entropy = quad_sum(entropy_[half]), distance = quad_sum(distance_[half]);
      entropy_[half] = distance_[half] = 0;
      if (lane_ % 4 != 0) continue;
      memory_.entropy[row_ + half * 8 + lane_ / 4] += entropy;
      memory_.distance[row_ + half * 8 + lane_ / 4] += distance;
    }
  }

  // The words of the bins go to counts and masses. What the leading bits leave out of a weight is
  // half a unit on average.
  __device__ void end_bins() {
    __syncwarp();
#pragma unroll 8
    for (int i = lane_; i < 16 * kBins; i += 32) {
      const int row = row_ + i / kBins, bin = i % kBins;
      auto& word = memory_.bins[row][place_of(row, bin)];
      const unsigned count = word >> kCountShift;
      const float units = static_cast<float>(word & kMassMask) + 0.5f * static_cast<float>(count);
      word = 0;
      const auto before = bins_kept_ ? bins_[i] : MassBin{0, 0.0f};
      bins_[i] = {before.count + count,
                  fmaf(units, exp2f(static_cast<float>(-kMassBits - 1 - bin / 2)), before.mass)};
    }
    bins_kept_ = true;
    __syncwarp();
  }

  // Sums over the warp's rows of each key of the tile: lanes that hold the same columns send each
  // other half of what they have, until each has its own.
  __device__ void store_columns(const ScoreFragments<Shape>& p) {
    constexpr int kValues = Shape::kKeys / 4;
    float v[kValues];
#pragma unroll
    for (int i = 0; i < kValues; ++i) v[i] = p[0][i / 2][i % 2] + p[0][i / 2][2 + i % 2];
    int first = 0;  // of the values that this lane still has
#pragma unroll
    for (int distance = 16, left = kValues / 2; distance >= 4; distance /= 2, left /= 2) {
      const bool upper = (lane_ & distance) != 0;
#pragma unroll
      for (int i = 0; i < left; ++i) {
        const float sent = upper ? v[i] : v[i + left];
        const float kept = upper ? v[i + left] : v[i];
        v[i] = kept + __shfl_xor_sync(kAllLanes, sent, distance);
      }
      if (upper) first += left;
    }
    float* const columns = memory_.columns[parity_][warp_];
#pragma unroll
    for (int i = 0; i < kValues / 8; ++i) {
      const int value = first + i;
      columns[value / 2 * 8 + lane_ % 4 * 2 + value % 2] = v[i];
    }
  }

  // The tile's sums over all rows of the block to the keys': integers, whose order is of no matter.
  __device__ void add_columns() {
    const int key = threadIdx.x;
    if (key >= Shape::kKeys || column_key_ < 0 || column_key_ + key >= block_.end) return;
    float sum = 0;
    for (int i = 0; i < Shape::kWarps; ++i) sum += memory_.columns[parity_][i][key];
    constexpr double kUnits = 1099511627776.0;  // 2^40
    const auto at = block_.batch_row(column_key_ + key) * a_.n_heads + block_.head;
    atomicAdd(reinterpret_cast<unsigned long long*>(options_.key_sums + at),
              static_cast<unsigned long long>(__double2ll_rn(sum * kUnits)));
  }

  __device__ void store(int row, std::int64_t column, double value) const {
    a_.values[(column * a_.heads + block_.head - a_.first_head) * a_.rows +
              block_.batch_row(block_.row + row)] = static_cast<float>(value);
  }

  __device__ void store_row(int row) const {
    const auto& layout = a_.layout;
    // The weights add up to 1 but for the rounding of the log-sum-exp, which is taken out.
    double total = 0;
    for (const double mass : memory_.masses[row_ + row]) total += mass;
    store(row, layout.entropy(),
          (memory_.entropy[row_ + row] / total + log2(total)) * static_cast<double>(kLn2));
    store(row, layout.distance_mean(), memory_.distance[row_ + row]);
    for (int width = 0; width < kWidths; ++width)
      store(row, layout.dist(width), memory_.masses[row_ + row][width]);
  }

  // The whole warp.
  __device__ void store_bins(int row) const {
    const auto& layout = a_.layout;
    const RowBins bins(bins_ + row * kBins);
    constexpr double kShares[] = {kKeyShare[0], kKeyShare[1], kKeyShare[2]};
    constexpr std::int64_t kTops[] = {kTopKey[0], kTopKey[1], kTopKey[2], kTopKey[3], kTopKey[4]};
#pragma unroll
    for (int k = 0; k < kKeyShares; ++k)
      bins.keys_of_share(kShares[k], [&](double low, double high) {
        store(row, layout.keys_low(k), low);
        store(row, layout.keys_high(k), high);
      });
#pragma unroll
    for (int k = 0; k < kTopKeys; ++k)
      bins.mass_of_top(static_cast<int>(kTops[k]), [&](double low, double high) {
        store(row, layout.top_low(k), low);
        store(row, layout.top_high(k), high);
      });
  }

  const ScoreArguments& a_;
  const Options& options_;
  const ScoreBlock& block_;
  Memory& memory_;
  RowWeights<Shape> weights_;
  int lane_, warp_;
  int row_;                 // the warp's first in the block
  MassBin* bins_;           // of the warp's rows
  bool bins_kept_ = false;  // the row's bins hold something
  int tiles_ = 0;
  int parity_ = 0;
  int column_key_ = -1;  // of the tile whose columns wait
  int width_ = 0;        // of the distances in mass_
  float mass_[2] = {}, tile_mass_[2] = {}, entropy_[2] = {}, distance_[2] = {};
};

}  // namespace qkscope::cuda
