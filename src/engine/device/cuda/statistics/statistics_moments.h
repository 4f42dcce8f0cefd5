// Moments (statistics A) on the GPU: sums over every row of q, k or v, as defined in
// qkscope/statistics.h. moment_statistics.cpp partitions the rows into chunks; the .cu files have
// the kernels.
//
// Rows are shifted by a constant per channel before they are summed, so that plain sums keep their
// precision. Sums of shifted rows are additive and are centred once, in float64, on the host.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include <cuda_runtime.h>

#include "base/core/convert.h"
#include "engine/device/cuda/memory/activation_copies.h"
#include "engine/statistics/moments.h"
#include "qkscope/statistics.h"

namespace qkscope::cuda {

// A chunk: at most 256 rows of one document, one token set (first or body), one position bucket.
struct MomentChunk {
  std::int32_t row;  // first row in the batch
  std::int32_t rows;
  std::int32_t position;  // position of the first row in its document
  std::int32_t bucket;
  std::int32_t sequence;  // index in the batch
};

// A short chunk, such as the first tokens of a document, is summed in float64, because the
// spread of its values can be far smaller than the constant that is subtracted (MomentShift).
__host__ __device__ inline bool has_few_rows(const MomentChunk& chunk) {
  return chunk.rows <= 8;
}

// Chunks [begin, end) that one thread block sums. All have the same token set and bucket, and all
// are short (has_few_rows()) or none is. Short chunks are summed in float64, others on tensor
// cores where can_use_tensor_cores() allows it.
struct MomentSegment {
  std::int32_t begin = 0, end = 0;
  std::int32_t float64_before = 0;  // number of earlier segments that are summed in float64
};

// Chunks or segments [begin, end).
struct IndexRange {
  std::int32_t begin = 0, end = 0;
};

struct MomentPartition {
  std::int64_t first = 0;        // positions below form the set of first tokens, others the body
  std::int64_t bucket_size = 1;  // positions per bucket; the last bucket is open-ended
  std::int64_t buckets = 1;
  auto operator<=>(const MomentPartition&) const = default;
};

// Chunks sorted by token set (first tokens, then body tokens), then position bucket, then
// length (short chunks first), then document.
struct MomentChunks {
  std::vector<MomentChunk> chunks;
  std::int32_t body = 0;  // index of the first body chunk
};

// Segments of one position bucket: [0] for the first tokens of documents, [1] for all later tokens.
struct BucketSegments {
  IndexRange of_set[2];
};

struct MomentSchedule {
  std::vector<MomentSegment> segments;         // of first tokens, then of the body
  std::vector<std::int32_t> float64_segments;  // indices
  std::int32_t body = 0;                       // index of the first body segment
  std::vector<BucketSegments> buckets;
};

// Layout of a record, the sums over the rows of a segment or of a token set, in doubles: (8, dim)
// sums per channel (ChannelSum); (pairs) magnitudes of rotary pairs; sum and maximum of row norms.
struct MomentRecordLayout {
  std::int64_t dim = 0;
  std::int64_t pairs = 0;

  constexpr std::int64_t rotary_offset() const { return 8 * dim; }
  constexpr std::int64_t norm_offset() const { return rotary_offset() + pairs; }
  constexpr std::int64_t norm_max_offset() const { return norm_offset() + 1; }
  constexpr std::int64_t size() const { return norm_offset() + 2; }
  // Element count of the Gram matrix's upper triangle, which is stored outside the record.
  constexpr std::int64_t triangle_size() const { return dim * (dim + 1) / 2; }
};
// Sums per channel in a record. x is an element, c and e are the shifts of its channel
// (MomentShift), y = x - e, z = x - c, t is the position and u = log2(t + 1).
enum ChannelSum { kSumY, kSumY2, kSumZT, kSumZU, kSumY3, kSumY4, kNegatedLeast, kLargest };

// Order in which the tensor-core kernel stores the upper triangle of the Gram matrix X^T X: the
// first accumulator register of every thread, then the second and so on, so that a warp writes
// consecutive addresses. The matrix is divided into blocks of 16 x 16 channels, of which those on
// and above the diagonal are computed. Two warps share the block rows P and block_rows - 1 - P:
// warp 2 P computes the left 8 columns of each block, warp 2 P + 1 the right 8. Such a pair of
// block rows has block_rows + 1 blocks for every P, so all warps do the same work.
struct GramFragments {
  int block_rows;  // blocks of 16 channels: 4 for d_head up to 64, else 8

  constexpr int threads() const { return block_rows * 32; }
  constexpr int elements_per_thread() const { return 4 * (block_rows + 1); }
  constexpr int size() const { return threads() * elements_per_thread(); }
  // Return the row and column of the Gram matrix element in a thread's i-th accumulator register.
  constexpr int row(int thread, int i) const {
    const int pair = thread / 64, lane = thread % 32;
    return (i / 4 < block_rows - pair ? pair : block_rows - 1 - pair) * 16 + lane / 4 +
           i % 4 / 2 * 8;
  }
  constexpr int column(int thread, int i) const {
    const int pair = thread / 64, lane = thread % 32, block = i / 4, first = block_rows - pair;
    const int block_column = block < first ? pair + block : block_rows - 1 - pair + block - first;
    return block_column * 16 + thread / 32 % 2 * 8 + lane % 4 * 2 + i % 2;
  }
};

// Constants per channel for shifting rows and finding outliers, estimated once from the first body
// rows (MomentPartition): three consecutive arrays, each (heads, dim).
struct MomentShift {
  const float* product = nullptr;  // c: the mean rounded to the element type if it is large, else 0
  const float* centre = nullptr;   // e: approximate mean
  // x is an outlier if (x - centre)^2 exceeds this limit; outlier powers are summed in float64.
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
  const MomentChunk* chunks = nullptr;
  const MomentSegment* segments = nullptr;
  std::int64_t segment_count = 0;
  const std::int32_t* float64_segments = nullptr;
  std::int64_t float64_segment_count = 0;
  MomentShift shift;
  double* records = nullptr;    // (segments, heads, record)
  double* triangles = nullptr;  // (float64 segments, heads, triangle)
  float* fragments = nullptr;   // (segments, heads, GramFragments), zero for float64 segments
  // Receives chunk * heads + head of the first chunk with a non-finite value; otherwise unchanged.
  std::int32_t* not_finite = nullptr;
};

// Estimates the shifts (MomentShift) of all channels, shape (3, heads, dim), from the first rows of
// `chunks`.
void estimate_moment_shift(const MomentArguments& arguments, IndexRange chunks, float* shift,
                           cudaStream_t stream);

// Returns whether tensor cores can sum the moments: 16-bit types, heads up to 128, 16-byte aligned
// rows. All other inputs are summed in float64, as is float16 with covariances per bucket, because
// these covariances are small compared with the rounding error of the products.
bool can_use_tensor_cores(const ActivationView& x, const MomentShape& shape);
GramFragments choose_gram_fragments(std::int64_t dim);
void sum_moments_16bit(const MomentArguments& arguments, cudaStream_t stream);
void sum_moments_float64(const MomentArguments& arguments, cudaStream_t stream);

// Results of combine_moments(): sums over all segments of each token set (first, body) and of each
// position bucket. They are sums of shifted rows (MomentShift), which the host centres.
struct CombinedMoments {
  IndexRange sets[2];           // segments of first tokens, of the body
  double* records = nullptr;    // (2, heads, record)
  double* triangles = nullptr;  // (2, heads, triangle)
  const BucketSegments* buckets = nullptr;
  std::int64_t bucket_count = 0;
  double* bucket_sums = nullptr;       // (heads, buckets, 2, dim): sums of y and of y^2
  double* bucket_triangles = nullptr;  // (heads, buckets, triangle) or null
};
void combine_moments(const MomentArguments& sums, const CombinedMoments& combined,
                     cudaStream_t stream);

}  // namespace qkscope::cuda
