// Moments in float64 for types and sizes that the tensor-core kernel does not support; estimation
// of the shifts; and conversion of summed records to centred moments.
#include <cmath>

#include "engine/device/cuda/elements.cuh"
#include "engine/device/cuda/statistics/statistics_moments.h"

namespace qkscope::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMostChannels = 256;        // d_head up to 256, one thread each
constexpr int kEdge = 32;                 // edge of the product tile of a block
constexpr int kStep = 16;                 // rows in shared memory at a time
constexpr std::int64_t kShiftRows = 256;  // rows from which the shifts are estimated

struct SegmentHead {
  MomentSegment segment;
  int head;
  double* record;
};

__device__ SegmentHead segment_of_this_block(const MomentArguments& a) {
  const auto heads = static_cast<int>(a.heads);
  return {a.segments[static_cast<int>(blockIdx.x) / heads], static_cast<int>(blockIdx.x) % heads,
          a.records + static_cast<std::int64_t>(blockIdx.x) * a.record.size()};
}

template <typename T>
__device__ const T* head_row(const MomentArguments& a, int head, std::int64_t row) {
  return static_cast<const T*>(a.x) + row * a.row_stride + head * a.record.dim;
}

// Products of channels: grid y runs over blocks of kEdge x kEdge products on and above the
// diagonal; each thread computes 2 x 2 of them.
template <typename T>
__global__ void __launch_bounds__(kThreads) products_kernel(const MomentArguments a, int edges) {
  __shared__ double left[kStep][kEdge], right[kStep][kEdge];
  int row_block = 0, column_block = static_cast<int>(blockIdx.y);
  while (column_block >= edges - row_block) column_block -= edges - row_block++;
  column_block += row_block;
  const auto [segment, head, record] = segment_of_this_block(a);
  const auto dim = static_cast<int>(a.record.dim);
  const int y = static_cast<int>(threadIdx.x) / 16 * 2, x = static_cast<int>(threadIdx.x) % 16 * 2;
  const auto load = [&](double(&to)[kStep][kEdge], int block, std::int64_t begin, int rows) {
    for (int item = threadIdx.x; item < kStep * kEdge; item += kThreads) {
      const int row = item / kEdge, channel = block * kEdge + item % kEdge;
      const bool valid = row < rows && channel < dim;
      to[row][item % kEdge] =
          valid ? static_cast<double>(to_float(head_row<T>(a, head, begin + row)[channel])) -
                      a.shift.product[head * dim + channel]
                : 0.0;
    }
  };
  double sums[2][2] = {};
  for (int index = segment.begin; index < segment.end; ++index) {
    const auto chunk = a.chunks[index];
    for (int offset = 0; offset < chunk.rows; offset += kStep) {
      __syncthreads();
      load(left, row_block, chunk.row + offset, chunk.rows - offset);
      load(right, column_block, chunk.row + offset, chunk.rows - offset);
      __syncthreads();
      for (int row = 0; row < kStep; ++row)
        for (int i = 0; i < 2; ++i)
          for (int j = 0; j < 2; ++j)
            sums[i][j] = fma(left[row][y + i], right[row][x + j], sums[i][j]);
    }
  }
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j) {
      const int row = row_block * kEdge + y + i, column = column_block * kEdge + x + j;
      if (row <= column && column < dim)
        record[row * dim - row * (row - 1) / 2 + column - row] = sums[i][j];
    }
}

// One thread per channel.
template <typename T>
__global__ void __launch_bounds__(kMostChannels) channels_kernel(const MomentArguments a) {
  const auto [segment, head, record] = segment_of_this_block(a);
  const int channel = threadIdx.x;
  const auto dim = a.record.dim;
  if (channel >= dim) return;
  const double centre = a.shift.centre[head * dim + channel];
  const double product = a.shift.product[head * dim + channel];
  double sums[6] = {};
  float least = INFINITY, largest = -INFINITY;
  for (int index = segment.begin; index < segment.end; ++index) {
    const auto chunk = a.chunks[index];
    double of_chunk[2] = {};
    for (int row = 0; row < chunk.rows; ++row) {
      const float x = to_float(head_row<T>(a, head, chunk.row + row)[channel]);
      const double y = x - centre, z = x - product, t = chunk.position + row;
      least = fminf(least, x);
      largest = fmaxf(largest, x);
      of_chunk[0] += y;
      of_chunk[1] += y * y;
      sums[kSumZT] += z * t;
      sums[kSumZU] += z * log2(t + 1);
      sums[kSumY3] += y * y * y;
      sums[kSumY4] += y * y * (y * y);
    }
    sums[kSumY] += of_chunk[0];
    sums[kSumY2] += of_chunk[1];
    float* to = a.chunk_sums + (index * a.heads + head) * 2 * dim + channel;
    to[0] = static_cast<float>(of_chunk[0]);
    to[dim] = static_cast<float>(of_chunk[1]);
  }
  for (int i = 0; i < 6; ++i) record[a.record.sums_offset() + i * dim + channel] = sums[i];
  record[a.record.least_offset() + channel] = least;
  record[a.record.largest_offset() + channel] = largest;
}

// Norms of rows: each warp processes one row at a time; the warps' sums are added in warp order.
template <typename T>
__global__ void __launch_bounds__(kThreads) norms_kernel(const MomentArguments a) {
  constexpr int kWarps = kThreads / 32, kLanePairs = kMostChannels / 2 / 32;
  __shared__ double of_pairs[kWarps][kMostChannels / 2];
  __shared__ double norms[kWarps];
  __shared__ double largest[kWarps];
  const auto [segment, head, record] = segment_of_this_block(a);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const auto dim = static_cast<int>(a.record.dim), pairs = static_cast<int>(a.record.pairs);
  double sums[kLanePairs] = {}, total = 0, norm_max = 0;
  for (int index = segment.begin; index < segment.end; ++index) {
    const auto chunk = a.chunks[index];
    for (int row = warp; row < chunk.rows; row += kWarps) {
      const T* x = head_row<T>(a, head, chunk.row + row);
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
  }
  for (int i = 0; i < kLanePairs; ++i) of_pairs[warp][lane + 32 * i] = sums[i];
  norms[warp] = total;
  largest[warp] = norm_max;
  __syncthreads();
  for (int pair = threadIdx.x; pair < pairs; pair += kThreads) {
    double sum = 0;
    for (int i = 0; i < kWarps; ++i) sum += of_pairs[i][pair];
    record[a.record.offset_of_pair_magnitudes() + pair] = sum;
  }
  if (threadIdx.x != 0) return;
  double sum = 0, most = 0;
  for (int i = 0; i < kWarps; ++i) {
    sum += norms[i];
    most = fmax(most, largest[i]);
  }
  record[a.record.norm_offset()] = sum;
  record[a.record.norm_max_offset()] = static_cast<float>(most);
}

// Ratio of mean to spread above which a channel is shifted before it is multiplied. Without a
// shift, products lose twice as many digits as the ratio has; with a shift, x - c must be exact in
// the element type, which holds from this ratio on for 8 mantissa bits, and from a smaller one for
// 11.
template <typename T>
constexpr double kShiftRatio = 16;
template <>
constexpr double kShiftRatio<__half> = 4;

// Mean rounded to an eighth of the spread, so that x minus the result is exact in float32.
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
    shift_kernel(const MomentArguments a, MomentSegment chunks, float* shifts) {
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

// Sums one element of the moment record (MomentRecordLayout) of a head over the segments.
__device__ double sum_over_segments(const MomentArguments& a, MomentSegment segments, int head,
                                    std::int64_t element) {
  double sum = 0;
#pragma unroll 8
  for (int i = segments.begin; i < segments.end; ++i)
    sum += a.records[(i * a.heads + head) * a.record.size() + element];
  return sum;
}

// Converts sum(x - e) of a channel to sum(x - c), with e = shift.centre and c = shift.product.
__device__ double recentre_sum(const MomentShift& shift, std::int64_t at, double sum, double n) {
  return sum + n * (static_cast<double>(shift.centre[at]) - shift.product[at]);
}

// Combines one element of the segment records of a set: minimum, maximum or sum over segments.
// Grid: x runs over the elements, y over heads, z over sets.
__global__ void __launch_bounds__(kThreads)
    combine_segments_kernel(const MomentArguments a, const FirstAndBodyMoments sets) {
  const auto& [segments, rows, moments] = sets.sets[blockIdx.z];
  const auto& record = a.record;
  const std::int64_t element = blockIdx.x * kThreads + threadIdx.x;
  if (rows.n == 0 || element >= record.size()) return;
  const bool is_least = element >= record.least_offset() && element < record.largest_offset();
  const bool is_largest =
      element == record.norm_max_offset() ||
      (element >= record.largest_offset() && element < record.offset_of_pair_magnitudes());
  double result = is_least ? INFINITY : is_largest ? -INFINITY : 0.0;
#pragma unroll 8
  for (int i = segments.begin; i < segments.end; ++i) {
    const double value = a.records[(i * a.heads + blockIdx.y) * record.size() + element];
    result = is_least ? fmin(result, value) : is_largest ? fmax(result, value) : result + value;
  }
  moments[blockIdx.y * record.size() + element] = result;
}

// Centres the power sums and position sums of one channel, in place.
__device__ void center_channel(const MomentArguments& a, const PositionSums& rows, int head,
                               int channel, double* sums) {
  const auto dim = a.record.dim;
  const auto n = static_cast<double>(rows.n);
  const double y = sums[kSumY * dim], y2 = sums[kSumY2 * dim], y3 = sums[kSumY3 * dim];
  const double m = y / n, z = recentre_sum(a.shift, head * dim + channel, y, n);
  sums[kSumY * dim] = a.shift.centre[head * dim + channel] + m;
  sums[kSumY2 * dim] = 0;
  sums[kSumZT * dim] -= z * rows.t_mean;
  sums[kSumZU * dim] -= z * rows.u_mean;
  sums[kSumY3 * dim] += -3 * m * y2 + 2 * n * m * m * m;
  sums[kSumY4 * dim] += -4 * m * y3 + 6 * m * m * y2 - 3 * n * m * m * m * m;
}

// Centres the combined record of a head and a set in place.
__device__ void center_record(const MomentArguments& a, const TokenSetMoments& set, int head,
                              double* means) {
  const auto& [segments, rows, moments] = set;
  if (rows.n == 0) return;
  const int thread = threadIdx.x;
  const auto dim = static_cast<int>(a.record.dim);
  const auto n = static_cast<double>(rows.n);
  double* const of_head = moments + head * a.record.size();
  double* const sums = of_head + a.record.sums_offset();
  if (thread < dim) {
    means[thread] = recentre_sum(a.shift, head * dim + thread, sums[kSumY * dim + thread], n) / n;
    center_channel(a, rows, head, thread, sums + thread);
  }
  __syncthreads();
  for (int row = thread / 32; row < dim; row += kMostChannels / 32)
    for (int column = row + thread % 32; column < dim; column += 32) {
      double& m2 = of_head[row * dim - row * (row - 1) / 2 + column - row];
      m2 -= n * means[row] * means[column];
      if (row == column) m2 = fmax(m2, 0.0);
    }
  for (int i = thread; i < a.record.pairs + 1; i += kMostChannels)  // mean norm after the pairs
    of_head[a.record.offset_of_pair_magnitudes() + i] /= n;
}

// Computes centred moments of one bucket of positions; one thread per channel.
__device__ void center_bucket(const MomentArguments& a, const BucketMomentResults& to, int head,
                              int bucket, double* means) {
  const int channel = threadIdx.x;
  const auto dim = a.record.dim;
  const auto segments = to.segments[bucket];
  double n = 0, y = 0, y2 = 0;
  const auto sums_of = [&](int chunk) {
    return a.chunk_sums + (chunk * a.heads + head) * 2 * dim +
           min(channel, static_cast<int>(dim) - 1);
  };
  for (const auto& chunks : {segments.first_chunks, segments.body_chunks}) {
#pragma unroll 8
    for (int i = chunks.begin; i < chunks.end; ++i) {
      n += a.chunks[i].rows;
      y += sums_of(i)[0];
      y2 += sums_of(i)[dim];
    }
    if (isfinite(y)) continue;
    for (int i = chunks.begin; i < chunks.end; ++i)
      if (!isfinite(sums_of(i)[0])) atomicMin(to.not_finite, static_cast<int>(i * a.heads + head));
  }
  if (channel < dim) {
    const auto at = (head * to.buckets + bucket) * dim + channel;
    const auto shift = head * dim + channel;
    to.mean[at] = n > 0 ? a.shift.centre[shift] + y / n : 0;
    to.m2[at] = n > 0 ? fmax(y2 - y * (y / n), 0.0) : 0;
    means[channel] = n > 0 ? recentre_sum(a.shift, shift, y, n) / n : 0;
  }
  if (to.cov == nullptr) return;
  __syncthreads();
  const auto triangle = a.record.triangle_size();
  double* cov = to.cov + (head * to.buckets + bucket) * triangle;
  for (int row = 0; row < dim; ++row)
    for (int column = row + threadIdx.x; column < dim; column += kMostChannels) {
      const auto at = row * dim - static_cast<std::int64_t>(row) * (row - 1) / 2 + column - row;
      const double sum = sum_over_segments(a, segments.first_segments, head, at) +
                         sum_over_segments(a, segments.body_segments, head, at);
      cov[at] = sum - n * means[row] * means[column];
    }
}

// Grid: x runs over the two sets, then over the buckets; y runs over heads.
__global__ void __launch_bounds__(kMostChannels)
    center_kernel(const MomentArguments a, const FirstAndBodyMoments sets,
                  const BucketMomentResults buckets) {
  __shared__ double means[kMostChannels];  // mean of x - c per channel
  const int part = blockIdx.x, head = blockIdx.y;
  if (part < 2)
    center_record(a, sets.sets[part], head, means);
  else
    center_bucket(a, buckets, head, part - 2, means);
}

}  // namespace

void estimate_moment_shift(const MomentArguments& a, MomentSegment chunks, float* shift,
                           cudaStream_t stream) {
  launch_for_dtype(a.dtype, a.heads, "shifts of moments", [&](auto type, unsigned blocks) {
    shift_kernel<decltype(type)><<<blocks, kMostChannels, 0, stream>>>(a, chunks, shift);
  });
}

void sum_moments_float64(const MomentArguments& a, cudaStream_t stream) {
  const auto edges = static_cast<unsigned>((a.record.dim + kEdge - 1) / kEdge);
  launch_for_dtype(a.dtype, a.segment_count * a.heads, "moments", [&](auto type, unsigned blocks) {
    using T = decltype(type);
    products_kernel<T><<<dim3(blocks, edges * (edges + 1) / 2), kThreads, 0, stream>>>(
        a, static_cast<int>(edges));
    channels_kernel<T><<<blocks, kMostChannels, 0, stream>>>(a);
    norms_kernel<T><<<blocks, kThreads, 0, stream>>>(a);
  });
}

void center_moments(const MomentArguments& sums, const FirstAndBodyMoments& sets,
                    const BucketMomentResults& buckets, cudaStream_t stream) {
  const auto heads = static_cast<unsigned>(sums.heads);
  const auto parts = static_cast<unsigned>((sums.record.size() + kThreads - 1) / kThreads);
  combine_segments_kernel<<<dim3(parts, heads, 2), kThreads, 0, stream>>>(sums, sets);
  check_launch("combine moments");
  center_kernel<<<dim3(static_cast<unsigned>(buckets.buckets) + 2, heads), kMostChannels, 0,
                  stream>>>(sums, sets, buckets);
  check_launch("centre moments");
}

}  // namespace qkscope::cuda
