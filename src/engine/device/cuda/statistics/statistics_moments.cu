// Moments in float64 for short chunks, and for types and sizes that the tensor-core kernel does not
// support; estimation of the constants that are subtracted (MomentShift); and sums over segments.
#include <cmath>

#include "engine/device/cuda/elements.cuh"
#include "engine/device/cuda/statistics/statistics_moments.h"

namespace qkscope::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMostChannels = kThreads;   // d_head up to 256, one thread each
constexpr int kEdge = 32;                 // channels per edge of a Gram block
constexpr int kStep = 16;                 // rows in shared memory at a time
constexpr std::int64_t kShiftRows = 256;  // rows used to estimate the shifts

// Work of a block of the float64 kernel: one segment of one head, and where its sums go.
struct MomentSegmentHead {
  MomentSegment segment;
  int rows;
  int head;
  double* record;
  double* triangle;
};

struct SegmentRow {
  int chunk;
  int row;  // in the batch
  int position;
};

// Returns row `row` of a segment, whose rows are the concatenation of its chunks.
__device__ SegmentRow find_row(const MomentArguments& a, MomentSegment segment, int row) {
  int chunk = segment.begin;
  while (row >= a.chunks[chunk].rows) row -= a.chunks[chunk++].rows;
  return {chunk, a.chunks[chunk].row + row, a.chunks[chunk].position + row};
}

template <typename T>
__device__ const T* head_row(const MomentArguments& a, int head, std::int64_t row) {
  return static_cast<const T*>(a.x) + row * a.row_stride + head * a.record.dim;
}

// Computes one kEdge x kEdge block of the Gram matrix; `block` numbers the blocks on and above the
// diagonal, row by row. Each thread computes 2 x 2 elements.
template <typename T>
__device__ void sum_gram_block(const MomentArguments& a, const MomentSegmentHead& at, int block) {
  __shared__ double left[kStep][kEdge], right[kStep][kEdge];
  const auto dim = static_cast<int>(a.record.dim);
  const int edges = (dim + kEdge - 1) / kEdge;
  int row_block = 0, column_block = block;
  while (column_block >= edges - row_block) column_block -= edges - row_block++;
  column_block += row_block;
  const int y = static_cast<int>(threadIdx.x) / 16 * 2, x = static_cast<int>(threadIdx.x) % 16 * 2;
  const auto load = [&](double(&to)[kStep][kEdge], int from, int begin) {
    for (int item = threadIdx.x; item < kStep * kEdge; item += kThreads) {
      const int row = begin + item / kEdge, channel = from * kEdge + item % kEdge;
      if (row >= at.rows || channel >= dim) continue;
      const T x = head_row<T>(a, at.head, find_row(a, at.segment, row).row)[channel];
      to[item / kEdge][item % kEdge] =
          static_cast<double>(to_float(x)) - a.shift.product[at.head * dim + channel];
    }
  };
  double sums[2][2] = {};
  for (int begin = 0; begin < at.rows; begin += kStep) {
    __syncthreads();
    load(left, row_block, begin);
    load(right, column_block, begin);
    __syncthreads();
    const int count = min(kStep, at.rows - begin);
#pragma unroll 4
    for (int row = 0; row < count; ++row)
      for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 2; ++j)
          sums[i][j] = fma(left[row][y + i], right[row][x + j], sums[i][j]);
  }
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j) {
      const int row = row_block * kEdge + y + i, column = column_block * kEdge + x + j;
      if (row <= column && column < dim) at.triangle[triangle_index(dim, row, column)] = sums[i][j];
    }
}

// Sums powers of the elements and their products with position; one thread per channel.
template <typename T>
__device__ void sum_channel_powers(const MomentArguments& a, const MomentSegmentHead& at) {
  const int channel = threadIdx.x;
  const auto dim = a.record.dim;
  if (channel >= dim) return;
  const double centre = a.shift.centre[at.head * dim + channel];
  const double product = a.shift.product[at.head * dim + channel];
  double sums[6] = {};
  float least = INFINITY, largest = -INFINITY;
#pragma unroll 8
  for (int i = 0; i < at.rows; ++i) {
    const auto row = find_row(a, at.segment, i);
    const float x = to_float(head_row<T>(a, at.head, row.row)[channel]);
    const double y = x - centre, z = x - product, t = row.position;
    least = fminf(least, x);
    largest = fmaxf(largest, x);
    sums[kSumY] += y;
    sums[kSumY2] += y * y;
    sums[kSumZT] += z * t;
    sums[kSumZU] += z * log2(t + 1);
    sums[kSumY3] += y * y * y;
    sums[kSumY4] += y * y * (y * y);
    if (!isfinite(x)) atomicMin(a.not_finite, static_cast<int>(row.chunk * a.heads + at.head));
  }
  for (int i = 0; i < 6; ++i) at.record[i * dim + channel] = sums[i];
  at.record[kNegatedLeast * dim + channel] = -least;
  at.record[kLargest * dim + channel] = largest;
}

// Sums the norms of rows and the magnitudes of rotary pairs. Warp w takes the rows w, w + kWarps
// and so on; the sums of the warps are added in a fixed order, so that results are deterministic.
template <typename T>
__device__ void sum_norms(const MomentArguments& a, const MomentSegmentHead& at) {
  constexpr int kWarps = kThreads / 32, kLanePairs = kMostChannels / 2 / 32;
  __shared__ double of_pairs[kWarps][kMostChannels / 2];
  __shared__ double norms[kWarps];
  __shared__ double largest[kWarps];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const auto dim = static_cast<int>(a.record.dim), pairs = static_cast<int>(a.record.pairs);
  double sums[kLanePairs] = {}, total = 0, norm_max = 0;
  for (int row = warp; row < at.rows; row += kWarps) {
    const T* x = head_row<T>(a, at.head, find_row(a, at.segment, row).row);
    double squares = 0;
    for (int channel = lane; channel < dim; channel += 32) {
      const double value = to_float(x[channel]);
      squares += value * value;
    }
    for (int i = 0; i < kLanePairs; ++i) {
      const int pair = lane + 32 * i;
      if (pair >= pairs) break;
      const double one = to_float(x[a.interleaved ? 2 * pair : pair]);
      const double other = to_float(x[a.interleaved ? 2 * pair + 1 : pair + pairs]);
      sums[i] += sqrt(one * one + other * other);
    }
    squares = warp_sum(squares);
    total += sqrt(squares);
    norm_max = fmax(norm_max, sqrt(squares));
  }
  for (int i = 0; i < kLanePairs; ++i) of_pairs[warp][lane + 32 * i] = sums[i];
  norms[warp] = total;
  largest[warp] = norm_max;
  __syncthreads();
  for (int pair = threadIdx.x; pair < pairs; pair += kThreads) {
    double sum = 0;
    for (int i = 0; i < kWarps; ++i) sum += of_pairs[i][pair];
    at.record[a.record.rotary_offset() + pair] = sum;
  }
  if (threadIdx.x != 0) return;
  double sum = 0, most = 0;
  for (int i = 0; i < kWarps; ++i) {
    sum += norms[i];
    most = fmax(most, largest[i]);
  }
  at.record[a.record.norm_offset()] = sum;
  at.record[a.record.norm_max_offset()] = static_cast<float>(most);
}

// Grid: x runs over (float64 segment, head); y = 0: channels, y = 1: norms, y > 1: Gram blocks.
template <typename T>
__global__ void __launch_bounds__(kThreads) float64_moments_kernel(const MomentArguments a) {
  const auto heads = static_cast<int>(a.heads);
  const auto index = std::int64_t{blockIdx.x};
  const int segment = a.float64_segments[index / heads], head = static_cast<int>(index % heads);
  int rows = 0;
  for (int i = a.segments[segment].begin; i < a.segments[segment].end; ++i)
    rows += a.chunks[i].rows;
  const MomentSegmentHead at{a.segments[segment], rows, head,
                             a.records + (segment * a.heads + head) * a.record.size(),
                             a.triangles + index * a.record.triangle_size()};
  if (blockIdx.y == 0)
    sum_channel_powers<T>(a, at);
  else if (blockIdx.y == 1)
    sum_norms<T>(a, at);
  else
    sum_gram_block<T>(a, at, static_cast<int>(blockIdx.y) - 2);
}

// Ratio of a channel's mean to its standard deviation above which a constant c near the mean is
// subtracted before products of channels are summed. Without this shift, products lose twice as
// many digits as the ratio has. Below this ratio, x - c might not be exact in the element type: 16
// for the 8 mantissa bits of bfloat16, 4 for the 11 of float16.
template <typename T>
constexpr double kShiftRatio = 16;
template <>
constexpr double kShiftRatio<__half> = 4;

// Rounds the mean to about 1/8 standard deviation, so that x minus the result is exact in float32.
template <typename T>
__device__ float choose_moment_centre(double mean, double variance) {
  if (variance == 0) return round_to_type<T>(static_cast<float>(mean));
  const double step = exp2(floor(0.5 * log2(variance)) - 3);
  return static_cast<float>(rint(mean / step) * step);
}

// Estimates the shift of every channel in two passes, for the mean and for the spread around the
// mean. One block per head, one thread per channel.
template <typename T>
__global__ void __launch_bounds__(kMostChannels)
    shift_kernel(const MomentArguments a, IndexRange chunks, float* shifts) {
  const int head = blockIdx.x, channel = threadIdx.x;
  const auto dim = a.record.dim;
  if (channel >= dim) return;
  const auto each_row = [&](auto use) {
    std::int64_t left = kShiftRows;
    for (int i = chunks.begin; i < chunks.end && left > 0; ++i) {
      const auto chunk = a.chunks[i];
      for (int row = 0; row < chunk.rows && left > 0; ++row, --left)
        use(static_cast<double>(to_float(head_row<T>(a, head, chunk.row + row)[channel])));
    }
    return kShiftRows - left;
  };
  double sum = 0, squares = 0;
  const auto count = static_cast<double>(each_row([&](double x) { sum += x; }));
  const double mean = sum / count;
  each_row([&](double x) { squares += (x - mean) * (x - mean); });
  const double variance = squares / count;
  const auto at = head * dim + channel, part = a.heads * dim;
  const double ratio = kShiftRatio<T>;
  shifts[at] =
      mean * mean <= ratio * ratio * variance ? 0.0f : round_to_type<T>(static_cast<float>(mean));
  shifts[part + at] = choose_moment_centre<T>(mean, variance);
  shifts[2 * part + at] = static_cast<float>(256 * variance);
}

// Returns the sum or maximum of x[i * stride] over i in `range`, with kAtOnce loads at a time.
template <typename Number>
__device__ double combine(const Number* x, std::int64_t stride, IndexRange range,
                          bool maximum = false) {
  constexpr int kAtOnce = 8;
  double result = maximum ? -INFINITY : 0.0;
  x += range.begin * stride;
#pragma unroll 1
  for (int left = range.end - range.begin; left > 0; left -= kAtOnce, x += kAtOnce * stride) {
    Number values[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (i < left) values[i] = x[i * stride];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (i < left)
        result = maximum ? fmax(result, static_cast<double>(values[i])) : result + values[i];
  }
  return result;
}

// Sums one element of the Gram matrix over ranges of segments and writes it to `triangle`. `number`
// is its index in GramFragments or, if all segments are summed in float64, in the triangle.
__device__ void combine_gram_element(const MomentArguments& a, GramFragments layout, int number,
                                     int head, const IndexRange (&ranges)[2], double* triangle) {
  const auto dim = static_cast<int>(a.record.dim);
  const auto size = a.record.triangle_size();
  std::int64_t product = number;
  if (a.fragments != nullptr) {
    const int thread = number % layout.threads(), i = number / layout.threads();
    const int row = layout.row(thread, i), column = layout.column(thread, i);
    if (row > column || column >= dim) return;
    product = triangle_index(dim, row, column);
  } else if (number >= size) {
    return;
  }
  const auto float64_before = [&](int segment) {
    return segment < a.segment_count ? a.segments[segment].float64_before
                                     : static_cast<int>(a.float64_segment_count);
  };
  double sum = 0;
  for (const auto& range : ranges) {
    if (range.begin == range.end) continue;
    if (a.fragments != nullptr)
      sum += combine(a.fragments + head * layout.size() + number, a.heads * layout.size(), range);
    sum += combine(a.triangles + head * size + product, a.heads * size,
                   {float64_before(range.begin), float64_before(range.end)});
  }
  triangle[product] = sum;
}

// Combines one element of several segments' records: sums by addition, extrema by maximum.
__device__ double combine_record_element(const MomentArguments& a, int element, int head,
                                         IndexRange range) {
  const auto& layout = a.record;
  const bool is_max = (element >= kNegatedLeast * layout.dim && element < layout.rotary_offset()) ||
                      element == layout.norm_max_offset();
  return combine(a.records + head * layout.size() + element, a.heads * layout.size(), range,
                 is_max);
}

// Work of the thread blocks of combine_kernel(). Each token set has `products` blocks for its Gram
// matrix, then `records` blocks for its record. Each bucket has `bucket_blocks` blocks: first
// `bucket_sums` for the sums of y and y^2 (ChannelSum), then those for its Gram matrix.
struct CombineGrid {
  GramFragments layout;
  int products, records, bucket_sums, bucket_blocks;
};

// Grid: x runs over the blocks (CombineGrid) of both token sets, then of the buckets; y over heads.
__global__ void __launch_bounds__(kThreads, 4)
    combine_kernel(const MomentArguments a, CombineGrid grid, const CombinedMoments to) {
  const int head = blockIdx.y, set_blocks = 2 * (grid.products + grid.records);
  const auto triangle = a.record.triangle_size();
  int block = blockIdx.x;
  const auto number = [&](int first_block) {
    return (block - first_block) * kThreads + static_cast<int>(threadIdx.x);
  };
  if (block < set_blocks) {
    const int set = block % 2;
    const auto at = set * a.heads + head;
    const IndexRange ranges[2] = {set == 0 ? to.sets[0] : to.sets[1], {}};
    block /= 2;
    if (block < grid.products)
      combine_gram_element(a, grid.layout, number(0), head, ranges, to.triangles + at * triangle);
    else if (number(grid.products) < a.record.size())
      to.records[at * a.record.size() + number(grid.products)] =
          combine_record_element(a, number(grid.products), head, ranges[0]);
    return;
  }
  const int bucket = (block - set_blocks) / grid.bucket_blocks;
  block = (block - set_blocks) % grid.bucket_blocks;
  const auto& ranges = to.buckets[bucket].of_set;
  const auto cell = head * to.bucket_count + bucket;
  if (block >= grid.bucket_sums)
    combine_gram_element(a, grid.layout, number(grid.bucket_sums), head, ranges,
                         to.bucket_triangles + cell * triangle);
  else if (number(0) < 2 * a.record.dim)
    to.bucket_sums[cell * 2 * a.record.dim + number(0)] =
        combine_record_element(a, number(0), head, ranges[0]) +
        combine_record_element(a, number(0), head, ranges[1]);
}

}  // namespace

void estimate_moment_shift(const MomentArguments& a, IndexRange chunks, float* shift,
                           cudaStream_t stream) {
  launch_for_dtype(a.dtype, a.heads, "shifts of moments", [&](auto type, unsigned blocks) {
    shift_kernel<decltype(type)><<<blocks, kMostChannels, 0, stream>>>(a, chunks, shift);
  });
}

void sum_moments_float64(const MomentArguments& a, cudaStream_t stream) {
  const auto edges = static_cast<unsigned>((a.record.dim + kEdge - 1) / kEdge);
  launch_for_dtype(a.dtype, a.float64_segment_count * a.heads, "moments",
                   [&](auto type, unsigned blocks) {
                     const dim3 grid(blocks, 2 + edges * (edges + 1) / 2);
                     float64_moments_kernel<decltype(type)><<<grid, kThreads, 0, stream>>>(a);
                   });
}

void combine_moments(const MomentArguments& sums, const CombinedMoments& combined,
                     cudaStream_t stream) {
  const auto blocks_of = [](std::int64_t threads) {
    return static_cast<int>((threads + kThreads - 1) / kThreads);
  };
  CombineGrid grid{.layout = choose_gram_fragments(sums.record.dim)};
  grid.products =
      blocks_of(sums.fragments != nullptr ? grid.layout.size() : sums.record.triangle_size());
  grid.records = blocks_of(sums.record.size());
  grid.bucket_sums = blocks_of(2 * sums.record.dim);
  grid.bucket_blocks =
      grid.bucket_sums + (combined.bucket_triangles != nullptr ? grid.products : 0);
  const auto blocks =
      2 * (grid.products + grid.records) + combined.bucket_count * grid.bucket_blocks;
  combine_kernel<<<dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(sums.heads)), kThreads,
                   0, stream>>>(sums, grid, combined);
  check_launch("combine moments");
}

}  // namespace qkscope::cuda
