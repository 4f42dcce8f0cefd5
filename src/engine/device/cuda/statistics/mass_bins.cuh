// Histogram of the attention weights of a query by magnitude, and concentration measures from it.
#pragma once

#include <cstdint>

#include "engine/device/cuda/elements.cuh"
#include "engine/statistics/attention_sums.h"

namespace qkscope::cuda {

constexpr int kBins = kMassBins;
// A histogram bin in shared memory is one 32-bit word: the high bits count the attention weights,
// the low bits sum their leading 12 mantissa bits.
constexpr int kCountShift = 22;
constexpr unsigned kMassMask = (1u << kCountShift) - 1;
constexpr int kMostCount = (1 << (32 - kCountShift)) - 1;
constexpr int kMassBits = 11;  // mantissa bits kept after the leading one

// Bin of a whole row.
struct HistogramBin {
  unsigned count;
  float mass;
};

// Bin b holds weights p with floor(-2 log2 p) = b, computed from the exponent of p^2; the last bin
// also holds all smaller weights. Each weight is replaced by the next smaller float, so that
// 2^(-b / 2) stays in bin b, and is limited to 1 - 2^-24, because rounding may make it exceed 1.
struct BinnedAttentionWeight {
  std::uint32_t square;  // bits of p^2
  unsigned word;         // increment of its bin

  __device__ __forceinline__ explicit BinnedAttentionWeight(float p) {
    constexpr int kBelowOne = 0x3f7fffff, kLeast = 0x2f800001;  // 1 - 2^-24, 2^-32 + 2^-55
    constexpr unsigned kOne = (1u << kCountShift) + (1u << kMassBits);
    constexpr unsigned kMask = (1u << kMassBits) - 1;
    const int bits = max(__viaddmin_s32(__float_as_int(p), -1, kBelowOne), kLeast);
    const float inside = __int_as_float(bits);
    square = __float_as_uint(inside * inside);
    // Computes kOne | (shifted & kMask) with a single LOP3 instruction.
    asm("lop3.b32 %0, %1, %2, %3, 0xEA;"
        : "=r"(word)
        : "r"(static_cast<unsigned>(bits) >> (23 - kMassBits)), "n"(kMask), "r"(kOne));
  }
  // Returns where a bin is stored in its row: the biased exponent of weight^2, modulo kBins.
  __device__ static int bin_word_index(int bin) { return (126 - bin) % kBins; }

  __device__ __forceinline__ void add_to_bin(std::uint32_t address) const {
    asm volatile("red.shared.add.u32 [%0], %1;" ::"r"(address), "r"(word) : "memory");
  }
};

// Histograms of the attention weights of a warp's 16 query rows. The four lanes of a row share its
// bins; the same bin of eight adjacent rows falls into eight different banks.
template <typename Shape>
class AttentionWeightHistogram {
 public:
  static constexpr int kTiles = kMostCount / Shape::kKeys;  // tiles until a count may overflow
  struct SharedStorage {
    alignas(4 * kBins) unsigned words[Shape::kWarps][16][kBins];
  };

  __device__ explicit AttentionWeightHistogram(SharedStorage& memory)
      : words_(memory.words[threadIdx.x / 32]) {
    const int lane = threadIdx.x % 32;
    for (int i = lane; i < 16 * kBins; i += 32) words_[i / kBins][i % kBins] = 0;
    for (int half = 0; half < 2; ++half)
      first_[half] =
          static_cast<std::uint32_t>(__cvta_generic_to_shared(words_[half * 8 + lane / 4])) ^
          bank_skew(lane / 4) * 4;
  }
  __device__ __forceinline__ void add_weight(int half, float p) const {
    const BinnedAttentionWeight weight(p);
    weight.add_to_bin((weight.square >> 21 & 4 * (kBins - 1)) ^ first_[half]);
  }
  // Returns the attention mass of a bin in units of its least significant bit, and clears the bin.
  __device__ HistogramBin read_and_clear_bin(int row, int bin) {
    auto& word = words_[row][BinnedAttentionWeight::bin_word_index(bin) ^ bank_skew(row)];
    const HistogramBin taken{word >> kCountShift, static_cast<float>(word & kMassMask)};
    word = 0;
    return taken;
  }
  __device__ void* shared_memory() { return words_; }

 private:
  __device__ static int bank_skew(int row) { return row % 8 * 4; }

  unsigned (&words_)[16][kBins];
  std::uint32_t first_[2];
};

// Cumulative attention mass and key counts of four queries. Each lane computes bounds on one of
// eight concentration measures of one query.
class AttentionMassBounds {
 public:
  static constexpr int kRows = 4;
  struct SharedStorage {
    double held[kRows][kBins + 1];  // cumulative mass before the bin
    int keys[kRows][kBins + 1];
  };
  static_assert(sizeof(SharedStorage) <= sizeof(unsigned) * 16 * kBins);
  static_assert(kKeyShares + kTopKeys == 32 / kRows);

  __device__ explicit AttentionMassBounds(void* memory)
      : memory_(*static_cast<SharedStorage*>(memory)) {}

  // Adds the histogram of query `row`; each lane of the warp reads two bins.
  __device__ void add_row(int row, const HistogramBin* bins) {
    const int lane = threadIdx.x % 32;
    int count[2];
    double mass[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      count[i] = static_cast<int>(bins[2 * lane + i].count);
      mass[i] = static_cast<double>(bins[2 * lane + i].mass);
    }
    int keys = count[0] + count[1];
    double held = mass[0] + mass[1];
    for (int distance = 1; distance < 32; distance *= 2) {
      const int more_keys = __shfl_up_sync(kAllLanes, keys, distance);
      const double more_held = __shfl_up_sync(kAllLanes, held, distance);
      if (lane < distance) continue;
      keys += more_keys;
      held += more_held;
    }
    keys -= count[0] + count[1];
    held -= mass[0] + mass[1];
    memory_.keys[row][2 * lane] = keys;
    memory_.held[row][2 * lane] = held;
    memory_.keys[row][2 * lane + 1] = keys + count[0];
    memory_.held[row][2 * lane + 1] = held + mass[0];
    if (lane < 31) return;
    // The last bin also counts weights below its range, as if they had its smallest value, so its
    // mass is limited to 1 minus the mass of the other bins.
    const double last = fmin(mass[1], fmax(0.0, 1.0 - held - mass[0]));
    memory_.keys[row][kBins] = keys + count[0] + count[1];
    memory_.held[row][kBins] = held + mass[0] + last;
  }

  struct Interval {
    double low, high;
  };
  // Returns bounds on the number of keys that hold a given share of the attention mass.
  __device__ Interval key_count_for_share(int row, double share) const {
    const auto& held = memory_.held[row];
    const auto& keys = memory_.keys[row];
    const int bin = first_bin_where([&](int b) { return held[b + 1] >= share; });
    const double before = keys[bin];
    if (bin == kBins) return {before, before};
    const double missing = share - held[bin], count = keys[bin + 1] - keys[bin];
    const double mass = held[bin + 1] - held[bin];
    const double high = before + fmin(count, fmax(1.0, ceil(missing * count / mass)));
    return {fmin(high, before + fmax(1.0, ceil(missing / upper_edge(bin)))), high};
  }
  // Returns bounds on the attention mass of the `top` largest weights.
  __device__ Interval mass_of_top_keys(int row, int top) const {
    const auto& held = memory_.held[row];
    const auto& keys = memory_.keys[row];
    const int bin = first_bin_where([&](int b) { return keys[b + 1] >= top; });
    if (bin == kBins) return {held[bin], held[bin]};
    const double missing = top - keys[bin], count = keys[bin + 1] - keys[bin];
    const double mass = held[bin + 1] - held[bin], part = mass * missing / count;
    return {held[bin] + part, held[bin] + fmax(part, fmin(mass, missing * upper_edge(bin)))};
  }

 private:
  // Binary search for the first bin that satisfies the monotonic predicate; kBins if none does.
  template <typename Reaches>
  __device__ static int first_bin_where(Reaches reaches) {
    int begin = 0, end = kBins;
    while (begin < end) {
      const int middle = (begin + end) / 2;
      if (reaches(middle))
        end = middle;
      else
        begin = middle + 1;
    }
    return begin;
  }
  __device__ static double upper_edge(int bin) {  // 2^(-bin / 2)
    const double power = __hiloint2double((1023 - bin / 2) << 20, 0);
    return bin % 2 == 0 ? power : 0.70710678118654752440 * power;
  }

  SharedStorage& memory_;
};

}  // namespace qkscope::cuda
