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
  double sums[6] = {};
  float least = INFINITY, largest = -INFINITY;
  for (int index = segment.begin; index < segment.end; ++index) {
    const auto chunk = a.chunks[index];
    double of_chunk[2] = {};
    for (int row = 0; row < chunk.rows; ++row) {
      const float x = to_float(head_row<T>(a, head, chunk.row + row)[channel]);
      const double y = x - centre, t = chunk.position + row;
      least = fminf(least, x);
      largest = fmaxf(largest, x);
      of_chunk[0] += y;
      of_chunk[1] += y * y;
      sums[kSumYT] += y * t;
      sums[kSumYU] += y * log2(t + 1);
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

// Segments of one token set, and the destination of one head's centred moments.
struct CenteredMoments {
  const TokenSetMoments& set;
  int head;
  double* moments;
};

constexpr int kTriangleRows = 2;  // rows of the triangle per block

// Centres rows [row_begin, row_begin + kTriangleRows) of the upper triangle of products.
__device__ void center_products(const MomentArguments& a, const CenteredMoments& to,
                                int row_begin) {
  __shared__ double means[kMostChannels];  // mean of x - c per channel
  const auto dim = static_cast<int>(a.record.dim);
  const auto n = static_cast<double>(to.set.rows.n);
  for (int channel = threadIdx.x; channel < dim; channel += kThreads) {
    const double sum = sum_over_segments(a, to.set.segments, to.head,
                                         a.record.sums_offset() + kSumY * dim + channel);
    means[channel] = recentre_sum(a.shift, to.head * dim + channel, sum, n) / n;
  }
  __syncthreads();
  const int row_end = min(row_begin + kTriangleRows, dim);
  const auto diagonal = [&](int row) { return row * dim - row * (row - 1) / 2; };
  for (int at = diagonal(row_begin) + threadIdx.x; at < diagonal(row_end); at += kThreads) {
    int row = row_begin;
    while (at >= diagonal(row + 1)) ++row;
    const int column = row + at - diagonal(row);
    const double m2 =
        sum_over_segments(a, to.set.segments, to.head, at) - n * means[row] * means[column];
    to.moments[at] = row == column ? fmax(m2, 0.0) : m2;
  }
}

// Centres the power sums and position sums of one channel, and combines the ranges.
__device__ void center_channel(const MomentArguments& a, const CenteredMoments& to, int channel) {
  const auto dim = a.record.dim;
  const auto n = static_cast<double>(to.set.rows.n);
  const auto sum = [&](int which) {
    return sum_over_segments(a, to.set.segments, to.head,
                             a.record.sums_offset() + which * dim + channel);
  };
  const double y = sum(kSumY), y2 = sum(kSumY2), y3 = sum(kSumY3), y4 = sum(kSumY4);
  const double m = y / n;
  double* centered = to.moments + a.record.sums_offset() + channel;
  centered[kSumY * dim] = a.shift.centre[to.head * dim + channel] + m;
  centered[kSumY2 * dim] = 0;
  centered[kSumYT * dim] = sum(kSumYT) - y * to.set.rows.t_mean;
  centered[kSumYU * dim] = sum(kSumYU) - y * to.set.rows.u_mean;
  centered[kSumY3 * dim] = y3 - 3 * m * y2 + 2 * n * m * m * m;
  centered[kSumY4 * dim] = y4 - 4 * m * y3 + 6 * m * m * y2 - 3 * n * m * m * m * m;
  double least = INFINITY, largest = -INFINITY;
#pragma unroll 8
  for (int i = to.set.segments.begin; i < to.set.segments.end; ++i) {
    const double* record = a.records + (i * a.heads + to.head) * a.record.size();
    least = fmin(least, record[a.record.least_offset() + channel]);
    largest = fmax(largest, record[a.record.largest_offset() + channel]);
  }
  to.moments[a.record.least_offset() + channel] = least;
  to.moments[a.record.largest_offset() + channel] = largest;
}

// Grid: x runs over the rows of the product triangle, then one block for all other moments; y runs
// over heads, z over sets.
__global__ void __launch_bounds__(kThreads)
    center_kernel(const MomentArguments a, const FirstAndBodyMoments sets) {
  const auto& set = sets.sets[blockIdx.z];
  if (set.rows.n == 0) return;
  const int head = blockIdx.y, row_begin = static_cast<int>(blockIdx.x) * kTriangleRows;
  const CenteredMoments to{set, head, set.moments + head * a.record.size()};
  const auto dim = static_cast<int>(a.record.dim);
  if (row_begin < dim) return center_products(a, to, row_begin);
  for (int channel = threadIdx.x; channel < dim; channel += kThreads)
    center_channel(a, to, channel);
  for (int i = threadIdx.x; i < a.record.pairs + 1; i += kThreads)  // mean norm after the pairs
    to.moments[a.record.offset_of_pair_magnitudes() + i] =
        sum_over_segments(a, set.segments, head, a.record.offset_of_pair_magnitudes() + i) /
        static_cast<double>(set.rows.n);
  if (threadIdx.x != 0) return;
  double most = 0;
#pragma unroll 8
  for (int i = set.segments.begin; i < set.segments.end; ++i)
    most =
        fmax(most, a.records[(i * a.heads + head) * a.record.size() + a.record.norm_max_offset()]);
  to.moments[a.record.norm_max_offset()] = most;
}

// Moments per bucket of positions: one block per head and bucket, one thread per channel.
__global__ void __launch_bounds__(kMostChannels)
    buckets_kernel(const MomentArguments a, const BucketMomentResults to) {
  __shared__ double means[kMostChannels];  // mean of x - c per channel
  const int bucket = blockIdx.x, head = blockIdx.y, channel = threadIdx.x;
  const auto dim = a.record.dim;
  const auto segments = to.segments[bucket];
  double n = 0, y = 0, y2 = 0;
  const auto add = [&](MomentSegment chunks) {
#pragma unroll 8
    for (int i = chunks.begin; i < chunks.end; ++i) {
      n += a.chunks[i].rows;
      if (channel >= dim) continue;
      const float* sums = a.chunk_sums + (i * a.heads + head) * 2 * dim + channel;
      if (!isfinite(sums[0])) atomicMin(to.not_finite, static_cast<int>(i * a.heads + head));
      y += sums[0];
      y2 += sums[dim];
    }
  };
  add(segments.first_chunks);
  add(segments.body_chunks);
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
                    cudaStream_t stream) {
  const auto parts =
      static_cast<unsigned>((sums.record.dim + kTriangleRows - 1) / kTriangleRows + 1);
  center_kernel<<<dim3(parts, static_cast<unsigned>(sums.heads), 2), kThreads, 0, stream>>>(sums,
                                                                                            sets);
  check_launch("fold moments");
}

void center_bucket_moments(const MomentArguments& sums, const BucketMomentResults& results,
                           cudaStream_t stream) {
  buckets_kernel<<<dim3(static_cast<unsigned>(results.buckets), static_cast<unsigned>(sums.heads)),
                   kMostChannels, 0, stream>>>(sums, results);
  check_launch("moments of buckets");
}

}  // namespace qkscope::cuda
