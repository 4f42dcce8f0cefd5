// Moments (statistics A) on the GPU: sums over every row of q, k or v, as defined in
// qkscope/statistics.h. moment_statistics.cpp partitions the rows into chunks; the .cu files have
// the kernels.
//
// Rows are shifted by a constant per channel before they are summed, so that plain sums keep their
// precision. Sums of shifted rows are additive and are centred once, in float64, at the end of a
// batch.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include <cuda_runtime.h>

#include "base/core/convert.h"
#include "qkscope/statistics.h"

namespace qkscope::cuda {

// A chunk: at most 256 rows of one document, one token set (first or body) and one bucket.
// Sums within a chunk are float32.
struct MomentChunk {
  std::int32_t row;  // first row in the batch
  std::int32_t rows;
  std::int32_t position;  // position of the first row in its document
  std::int32_t bucket;
  std::int32_t sequence;  // index in the batch
};

// Chunks [begin, end) of one token set and one bucket, which one block sums. Also used for ranges
// of segments.
struct MomentSegment {
  std::int32_t begin = 0, end = 0;
};

struct MomentPartition {
  std::int64_t first = 0;        // positions below form the set of first tokens
  std::int64_t bucket_size = 1;  // positions per bucket; the last bucket is open-ended
  std::int64_t buckets = 1;
  auto operator<=>(const MomentPartition&) const = default;
};

// Chunks sorted by token set (first tokens, then body tokens), then bucket, then document.
struct MomentChunks {
  std::vector<MomentChunk> chunks;
  std::int32_t body = 0;  // index of the first body chunk
};

// Chunks and segments of one bucket, separately for first tokens of documents and body tokens.
struct BucketSegments {
  MomentSegment first_chunks, body_chunks;
  MomentSegment first_segments, body_segments;
};

struct MomentSchedule {
  std::vector<MomentSegment> segments;  // segments of first tokens, then of the body
  std::int32_t body = 0;                // index of the first body segment
  std::vector<BucketSegments> buckets;
};

// Layout of a segment's record, offsets in doubles. x is an element, c and e the shifts of its
// channel, t the position and u = log2(t + 1).
struct MomentRecordLayout {
  std::int64_t dim = 0;
  std::int64_t pairs = 0;

  constexpr std::int64_t triangle_size() const { return dim * (dim + 1) / 2; }
  // A record begins with the upper triangle of the sum of (x - c)(x - c)^T, row by row.
  constexpr std::int64_t sums_offset() const { return triangle_size(); }  // (6, dim), see below
  constexpr std::int64_t least_offset() const { return sums_offset() + 6 * dim; }
  constexpr std::int64_t largest_offset() const { return least_offset() + dim; }
  constexpr std::int64_t offset_of_pair_magnitudes() const { return largest_offset() + dim; }
  constexpr std::int64_t norm_offset() const { return offset_of_pair_magnitudes() + pairs; }
  constexpr std::int64_t norm_max_offset() const { return norm_offset() + 1; }
  constexpr std::int64_t size() const { return norm_offset() + 2; }
};
// Rows of the sums in a moment record, with y = x - e and z = x - c.
enum MomentSumRow { kSumY, kSumY2, kSumZT, kSumZU, kSumY3, kSumY4 };

// Shifts of every channel, estimated once from the first body rows; three consecutive arrays
// (heads, dim).
struct MomentShift {
  const float* product = nullptr;  // c: the mean rounded to the element type if it is large, else 0
  const float* centre = nullptr;   // e: approximate mean
  // x is an outlier if (x - e)^2 exceeds this limit; powers of outliers are summed in float64.
  const float* limit = nullptr;
};

// All pointers are device pointers.
struct MomentArguments {
  const void* x = nullptr;      // (rows, heads, dim)
  std::int64_t row_stride = 0;  // elements
  std::int64_t heads = 0;
  MomentRecordLayout record;
  bool interleaved = false;  // rotary pairs (2i, 2i + 1) instead of (i, i + pairs)
  DType dtype = DType::bf16;
  bool bucket_covariance = false;  // the records also give covariances within buckets
  const MomentChunk* chunks = nullptr;
  const MomentSegment* segments = nullptr;
  std::int64_t segment_count = 0;
  MomentShift shift;
  double* records = nullptr;    // (segments, heads, record)
  float* chunk_sums = nullptr;  // (chunks, heads, 2, dim): sums of y and of y^2
};

// Estimates the moment shifts of all channels, shape (3, heads, dim), from the first rows of
// chunks.
void estimate_moment_shift(const MomentArguments& arguments, MomentSegment chunks, float* shift,
                           cudaStream_t stream);

// Kernels: on tensor cores for 16-bit types, heads up to 128 and 16-byte aligned rows; in float64
// for everything else. float16 with covariances per bucket uses float64, because covariances within
// a bucket are small compared with the rounding error of the products.
bool moments_fit_tensor_cores(const MomentArguments& arguments);
void sum_moments_16bit(const MomentArguments& arguments, cudaStream_t stream);
void sum_moments_float64(const MomentArguments& arguments, cudaStream_t stream);

// Centred moments of a token set in MomentRecordLayout. Triangle: M2; sums: mean, unused,
// co-moments with t and with u, third and fourth moments; pair_abs and norm: means. Not written for
// an empty set.
struct TokenSetMoments {
  MomentSegment segments;
  PositionSums rows;
  double* moments = nullptr;  // (heads, record)
};
struct FirstAndBodyMoments {
  TokenSetMoments sets[2];  // first tokens, body tokens
};

// Moments per bucket: mean and m2 of each dimension, and the full M2 if `cov` is given.
struct BucketMomentResults {
  const BucketSegments* segments = nullptr;  // (buckets)
  std::int64_t buckets = 0;
  double* mean = nullptr;  // (heads, buckets, dim)
  double* m2 = nullptr;    // (heads, buckets, dim)
  double* cov = nullptr;   // (heads, buckets, triangle) or null
  // Receives chunk * heads + head of the first chunk with a non-finite value; otherwise unchanged.
  std::int32_t* not_finite = nullptr;
};

// Combines the records of all segments into centred moments of both sets and of all buckets.
void center_moments(const MomentArguments& sums, const FirstAndBodyMoments& sets,
                    const BucketMomentResults& buckets, cudaStream_t stream);

}  // namespace qkscope::cuda
