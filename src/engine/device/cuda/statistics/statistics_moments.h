// Group A on the GPU: sums over every row of q, k or v. What is summed is in qkscope/statistics.h;
// statistics_moments.cpp cuts the rows into chunks, the .cu files have the kernels.
//
// Rows are shifted by a number per channel before they are summed, so that plain sums keep their
// digits; sums of shifted rows add up, and are centred once, in float64, at the end of a batch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <cuda_runtime.h>

#include "base/core/dtype.h"
#include "qkscope/forward.h"

namespace qkscope::cuda {

constexpr std::int32_t kChunkRows = 256;

// At most kChunkRows rows of one document, one set and one bucket. Within it sums are float32.
struct MomentChunk {
  std::int32_t row;  // of the batch
  std::int32_t rows;
  std::int32_t position;  // of the first row in its document
  std::int32_t bucket;
  std::int32_t sequence;  // of the batch
};

// What one block sums: chunks [begin, end), all of one set and one bucket. Also other ranges.
struct MomentSegment {
  std::int32_t begin = 0, end = 0;
};

struct MomentCut {
  std::int64_t first = 0;        // positions below it are a set of their own
  std::int64_t bucket_size = 1;  // positions of a bucket; the last has all that follow
  std::int64_t buckets = 1;
};

// Chunks by set (first, body), then bucket, then document.
struct MomentChunks {
  std::vector<MomentChunk> chunks;
  std::int32_t body = 0;  // where the second set begins
};
MomentChunks moment_chunks(std::span<const Sequence> sequences, const MomentCut& cut);

// Of one bucket: chunks and segments of the first tokens, and of the others.
struct BucketWork {
  MomentSegment first_chunks, body_chunks;
  MomentSegment first_segments, body_segments;
};

struct MomentWork {
  std::vector<MomentSegment> segments;  // of both sets, in the order of the chunks
  std::int32_t body = 0;                // the first of the second set
  std::vector<BucketWork> buckets;
};
// Segments so long that those of all heads are a few hundred blocks.
MomentWork moment_work(const MomentChunks& chunks, std::int64_t buckets, std::int64_t heads);

// Where a segment's sums lie in its record, in doubles. x is an element, c and e its channel's
// shifts, t the position and u = log2(t + 1).
struct MomentRecord {
  std::int64_t dim = 0;
  std::int64_t pairs = 0;

  __host__ __device__ std::int64_t triangle() const { return dim * (dim + 1) / 2; }
  // sum (x - c)(x - c)^T, upper triangle by rows, comes first.
  __host__ __device__ std::int64_t sums() const { return triangle(); }  // (6, dim), see below
  __host__ __device__ std::int64_t least() const { return sums() + 6 * dim; }
  __host__ __device__ std::int64_t largest() const { return least() + dim; }
  __host__ __device__ std::int64_t pair_abs() const { return largest() + dim; }
  __host__ __device__ std::int64_t norm() const { return pair_abs() + pairs; }
  __host__ __device__ std::int64_t norm_max() const { return norm() + 1; }
  __host__ __device__ std::int64_t size() const { return norm() + 2; }
};
// Rows of sums(), with y = x - e.
enum MomentSum { kSumY, kSumY2, kSumYT, kSumYU, kSumY3, kSumY4 };

// The shifts of every channel, fixed once from the first body rows. (3, heads, dim) one after
// another.
struct MomentShift {
  const float* product = nullptr;  // c: the mean, rounded to the type, where it is large; else 0
  const float* centre = nullptr;   // e: about the mean
  const float* limit = nullptr;    // (x - e)^2 above it enters third and fourth powers in float64
};

// All pointers are to device memory.
struct MomentArguments {
  const void* x = nullptr;      // (rows, heads, dim)
  std::int64_t row_stride = 0;  // elements
  std::int64_t heads = 0;
  MomentRecord record;
  bool interleaved = false;  // rotary pairs (2i, 2i + 1) instead of (i, i + pairs)
  DType dtype = DType::bf16;
  bool bucket_covariance = false;  // covariances within buckets are made from the records
  const MomentChunk* chunks = nullptr;
  const MomentSegment* segments = nullptr;
  std::int64_t segment_count = 0;
  MomentShift shift;
  double* records = nullptr;    // (segments, heads, record)
  float* chunk_sums = nullptr;  // (chunks, heads, 2, dim): sums of y and of y^2
};

// From the first `rows` rows of chunks [0, chunk_count): all three parts of the shift.
struct MomentShiftArguments {
  const void* x = nullptr;
  std::int64_t row_stride = 0;
  std::int64_t heads = 0;
  std::int64_t dim = 0;
  DType dtype = DType::bf16;
  const MomentChunk* chunks = nullptr;
  std::int64_t chunk_count = 0;
  std::int64_t rows = 0;
  float* shift = nullptr;  // (3, heads, dim)
};
void find_moment_shift(const MomentShiftArguments& arguments, cudaStream_t stream);

// The records and the sums of every chunk. The same arguments give the same bits.
void sum_moments(const MomentArguments& arguments, cudaStream_t stream);
// The kernels of it: on the matrix units, for 16-bit types with heads of up to 128 and rows at
// 16-byte addresses; and in float64 throughout, for everything. float16 with covariances of buckets
// takes the second: within a bucket they are small beside the products' rounding.
bool moments_fit_matrix_units(const MomentArguments& arguments);
void sum_moments_16bit(const MomentArguments& arguments, cudaStream_t stream);
void sum_moments_plain(const MomentArguments& arguments, cudaStream_t stream);

// What is known of the rows of a set without looking at them.
struct MomentRows {
  double n = 0;
  double t_mean = 0;
  double u_mean = 0;
};

// The moments of a set: a record again, of which the triangle is M2, the sums are mean, nothing,
// ct, cu, m3 and m4, and pair_abs and norm are means. Without rows nothing is written.
struct FoldSet {
  MomentSegment segments;
  MomentRows rows;
  double* moments = nullptr;  // (heads, record)
};
struct FoldArguments {
  const double* records = nullptr;  // (segments, heads, record)
  MomentRecord record;
  std::int64_t heads = 0;
  MomentShift shift;
  FoldSet sets[2];
};
void fold_moments(const FoldArguments& arguments, cudaStream_t stream);

// Per bucket: mean and m2 of each dimension, and where `cov` is given the whole M2.
struct BucketArguments {
  const float* chunk_sums = nullptr;  // (chunks, heads, 2, dim)
  const MomentChunk* chunks = nullptr;
  const double* records = nullptr;   // (segments, heads, record)
  const BucketWork* work = nullptr;  // (buckets)
  MomentRecord record;
  std::int64_t heads = 0;
  std::int64_t buckets = 0;
  MomentShift shift;
  double* mean = nullptr;  // (heads, buckets, dim)
  double* m2 = nullptr;    // (heads, buckets, dim)
  double* cov = nullptr;   // (heads, buckets, triangle) or null
  // Chunk * heads + head of the first chunk with a number that is not finite; else untouched.
  std::int32_t* not_finite = nullptr;
};
void fold_buckets(const BucketArguments& arguments, cudaStream_t stream);

}  // namespace qkscope::cuda
