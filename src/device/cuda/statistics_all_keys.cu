// Group C: entropy, distances, how concentrated the mass of a row is, and the mass of each key, in
// one more pass over all keys.
#include <algorithm>

#include "device/cuda/statistics_scores.cuh"

namespace qkscope::cuda {
namespace {

constexpr int kBins = kMassBins;
constexpr int kWidths = kDistances;
constexpr int kSumTiles = 16;  // float32 sums go to float64 after so many tiles
// A bin of one lane is one word: how many weights, and their sum in units of 2^-12 of the largest
// weight that the bin takes.
constexpr int kCountShift = 22;
constexpr unsigned kMassMask = (1u << kCountShift) - 1;
constexpr int kMostCount = (1 << (32 - kCountShift)) - 1;

__device__ int bit_width(int x) {
  return 32 - __clz(x);
}

// One band of 16 rows to a warp: the lanes' bins fill the shared memory.
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
// For GPUs that give a block 227 KB, and for the others.
template <typename T, int kWidth>
using LargeShape = AllKeysShape<T, kWidth, sizeof(T) == 2 && kWidth <= 128 ? 8 : 4>;
template <typename T, int kWidth>
using SmallShape = AllKeysShape<T, kWidth, 2>;
constexpr std::size_t kLargeMemory = 227 << 10;

// A bin of a whole row.
struct MassBin {
  unsigned count;
  float mass;
};

struct AllKeysOptions {
  std::int64_t* key_sums;  // (rows, n_heads)
  MassBin* bins;           // (blocks, rows of a tile, kBins)
};

// Between which numbers the keys that hold a share of the mass lie, and the mass of the largest.
class RowBins {
 public:
  __device__ explicit RowBins(const MassBin* bins) : bins_(bins) {}

  __device__ void keys_of_share(double share, float* low, float* high) const {
    double held = 0, keys = 0;
    for (int b = 0; b < kBins; ++b) {
      const double count = bins_[b].count, mass = bins_[b].mass;
      if (count > 0 && held + mass >= share) {
        const double missing = share - held;
        *high = static_cast<float>(keys + fmin(count, fmax(1.0, ceil(missing * count / mass))));
        *low = fminf(*high, static_cast<float>(keys + fmax(1.0, ceil(missing / largest(b)))));
        return;
      }
      held += mass;
      keys += count;
    }
    *low = *high = static_cast<float>(keys);
  }

  __device__ void mass_of_top(double top, float* low, float* high) const {
    double held = 0;
    for (int b = 0; b < kBins; ++b) {
      const double count = bins_[b].count, mass = bins_[b].mass;
      if (count >= top) {
        const double part = count == 0 ? 0 : mass * top / count;
        *low = static_cast<float>(held + part);
        *high = static_cast<float>(held + fmax(part, fmin(mass, top * largest(b))));
        return;
      }
      held += mass;
      top -= count;
    }
    *low = *high = static_cast<float>(held);
  }

 private:
  __device__ static double largest(int bin) { return exp2(-0.5 * bin); }

  const MassBin* bins_;
};

template <typename T, typename Shape>
class AllKeys {
 public:
  static constexpr int kBlocks = 1;
  using Options = AllKeysOptions;
  struct Memory {
    double entropy[Shape::kRows], distance[Shape::kRows];
    double masses[Shape::kRows][kWidths];
    unsigned bins[Shape::kWarps][2][kBins][32];  // of each lane, for its two rows
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
    for (int i = 0; i < 2 * kBins; ++i) memory.bins[warp_][i / kBins][i % kBins][lane_] = 0;
    for (int i = lane_; i < 16 * kBins; i += 32) bins_[i] = {0, 0.0f};
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
  }

 private:
  static constexpr int kBinTiles = kMostCount / (Shape::kKeys / 4);

  // Weights take the place of scores.
  template <bool kAllSeen>
  __device__ __forceinline__ void add_rows(ScoreFragments<Shape>& scores, int key) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int from = block_.row + half * 8 + lane_ / 4 - key - lane_ % 4 * 2;  // distance
      unsigned* const bins = &memory_.bins[warp_][half][0][lane_];
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
          add_to_bin(bins, x);
        }
      entropy_[half] -= entropy;
      distance_[half] += fmaf(mass, static_cast<float>(from), -offset);
      tile_mass_[half] = mass;
    }
  }

  // Bin b holds floor(-2 log2 p) = b, the last has the rest.
  __device__ static __forceinline__ void add_to_bin(unsigned* bins, float x) {
    constexpr float kRound = 12582912.0f;  // adding it rounds to an integer in the low bits
    const float y = fmaxf(-2.0f * x, 0.0f);
    const float shifted = fminf(y - 0.49999997f, kBins - 1.0f) + kRound;
    const int bin = __float_as_int(shifted) & (kBins - 1);
    const float f = y - (shifted - kRound);
    // 2^(-f/2), by its first terms; what the last bin takes may be smaller by far
    const float share = f <= 1.0f ? fmaf(f, fmaf(f, fmaf(f, -0.0060f, 0.0597f), -0.34656f), 1.0f)
                                  : exp2_fast(-0.5f * f);
    const float units = fmaf(share, 4096.0f, 8388608.0f);
    bins[bin * 32] += (1u << kCountShift) + (__float_as_uint(units) & kMassMask);
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

  // The bins of the four lanes of a row go to the row's own.
  __device__ void end_bins() {
    for (int half = 0; half < 2; ++half)
      for (int bin = 0; bin < kBins; ++bin) {
        auto& word = memory_.bins[warp_][half][bin][lane_];
        unsigned count = word >> kCountShift, mass = word & kMassMask;
        word = 0;
        for (int distance = 1; distance <= 2; distance *= 2) {
          count += __shfl_xor_sync(kAllLanes, count, distance);
          mass += __shfl_xor_sync(kAllLanes, mass, distance);
        }
        if (lane_ % 4 != 0 || count == 0) continue;
        auto& to = bins_[(half * 8 + lane_ / 4) * kBins + bin];
        to.count += count;
        to.mass += static_cast<float>(mass) * (exp2f(-0.5f * static_cast<float>(bin)) / 4096.0f);
      }
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

  __device__ void store_row(int row) {
    const auto& layout = a_.layout;
    const auto store = [&](std::int64_t column, double value) {
      a_.values[(column * a_.heads + block_.head - a_.first_head) * a_.rows +
                block_.batch_row(block_.row + row)] = static_cast<float>(value);
    };
    store(layout.entropy(), memory_.entropy[row_ + row] * static_cast<double>(kLn2));
    store(layout.distance_mean(), memory_.distance[row_ + row]);
    for (int width = 0; width < kWidths; ++width)
      store(layout.dist(width), memory_.masses[row_ + row][width]);
    const RowBins bins(bins_ + row * kBins);
    constexpr double kShares[] = {kKeyShare[0], kKeyShare[1], kKeyShare[2]};
    constexpr std::int64_t kTops[] = {kTopKey[0], kTopKey[1], kTopKey[2], kTopKey[3], kTopKey[4]};
    float low = 0, high = 0;
    for (int k = 0; k < kKeyShares; ++k) {
      bins.keys_of_share(kShares[k], &low, &high);
      store(layout.keys_low(k), low);
      store(layout.keys_high(k), high);
    }
    for (int k = 0; k < kTopKeys; ++k) {
      bins.mass_of_top(static_cast<double>(kTops[k]), &low, &high);
      store(layout.top_low(k), low);
      store(layout.top_high(k), high);
    }
  }

  const ScoreArguments& a_;
  const Options& options_;
  const ScoreBlock& block_;
  Memory& memory_;
  RowWeights<Shape> weights_;
  int lane_, warp_;
  int row_;        // the warp's first in the block
  MassBin* bins_;  // of the warp's rows
  int tiles_ = 0;
  int parity_ = 0;
  int column_key_ = -1;  // of the tile whose columns wait
  int width_ = 0;        // of the distances in mass_
  float mass_[2] = {}, tile_mass_[2] = {}, entropy_[2] = {}, distance_[2] = {};
};

// Blocks of a launch, whose rows' bins fill the scratch: several for every multiprocessor of a
// large GPU.
constexpr std::int64_t kLaunchBlocks = 1024;

}  // namespace

std::int64_t all_keys_tile_rows(DType dtype, std::int64_t d_head) {
  if (shared_memory_limit() < kLargeMemory) return SmallShape<__half, 128>::kRows;
  return dtype == DType::f32 || d_head > 128 ? LargeShape<float, 128>::kRows
                                             : LargeShape<__half, 128>::kRows;
}

std::int64_t all_keys_scratch() {
  return kLaunchBlocks * LargeShape<__half, 128>::kRows * kBins *
         static_cast<std::int64_t>(sizeof(MassBin));
}

void all_keys(const ScoreArguments& arguments, const AllKeysArguments& more, cudaStream_t stream) {
  const auto step = std::max<std::int64_t>(1, kLaunchBlocks / arguments.heads);
  const AllKeysOptions options{more.key_sums, static_cast<MassBin*>(more.bins)};
  auto part = arguments;
  for (std::int64_t tile = 0; tile < arguments.tile_count; tile += step) {
    part.tiles = arguments.tiles + tile;
    part.tile_count = std::min(step, arguments.tile_count - tile);
    if (shared_memory_limit() < kLargeMemory)
      launch_pass<SmallShape, AllKeys>(part, options, stream);
    else
      launch_pass<LargeShape, AllKeys>(part, options, stream);
  }
}

}  // namespace qkscope::cuda
