#include "engine/device/cuda/elements.cuh"
#include "engine/device/cuda/mixer/mixer_kernels.h"
#include "engine/device/cuda/tensor_core.cuh"
#include "engine/device/recurrence_plan.h"

namespace qkscope::cuda {
namespace {

constexpr int kChunk = static_cast<int>(kCudaRecurrenceChunk);
constexpr int kTile = 64;                 // columns of the state in a block of the chunk kernel
constexpr int kChunkThreads = 128;        // four warps
constexpr int kTiles = kChunk / 8;        // accumulators of 16 rows of a chunk x chunk matrix
constexpr int kSystemPitch = kChunk + 8;  // floats
// Matrices per chunk and head: high and low parts of P and, if kDelta, of T (see run_recurrence()).
template <bool kDelta>
constexpr int kMatrices = kDelta ? 4 : 2;

// A 16 x 16 operand in nearly float32 precision, as the sum of two fragments of the 16-bit type T.
template <typename T>
struct SplitFragment {
  std::uint32_t high[4];
  std::uint32_t low[4];

  SplitFragment() = default;
  // Splits float32 accumulators: `left` has columns 0 to 7 of the operand, `right` columns 8 to 15.
  __device__ __forceinline__ SplitFragment(const float (&left)[4], const float (&right)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float x = i < 2 ? left[2 * i] : right[2 * i - 4];
      const float y = i < 2 ? left[2 * i + 1] : right[2 * i - 3];
      high[i] = pack_pair<T>(x, y);
      low[i] = pack_pair<T>(x - round_to_type<T>(x), y - round_to_type<T>(y));
    }
  }
};

// Returns this lane's address for ldmatrix_x4(), for 16 x 16 values at (row, column) of a tile.
// The four 8 x 8 matrices are in row-major or, with kColumnFirst, in column-major order.
template <int kRowPitch, bool kColumnFirst>
__device__ __forceinline__ std::uint32_t fragment_address(const char* tile, int row, int column) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int down = kColumnFirst ? lane / 8 % 2 : lane / 16;
  const int across = kColumnFirst ? lane / 16 : lane / 8 % 2;
  return shared_address(tile + (row + 8 * down + lane % 8) * kRowPitch + (column + 8 * across) * 2);
}

// Adds part (16, 16) times rows [16 * step, 16 * step + 16) of a matrix M (depth, 8 * kCount) to c,
// except columns below 16 * begin. `tile` is M in shared memory, or its transpose without
// kStraight. With kHighOnly, multiplies only part.high, not part.low.
template <typename T, int kRowPitch, bool kStraight, bool kHighOnly, int kCount>
__device__ __forceinline__ void multiply_tile(float (&c)[kCount][4], const SplitFragment<T>& part,
                                              const char* tile, int step, int begin = 0) {
#pragma unroll
  for (int pair = 0; pair < kCount / 2; ++pair) {
    if (pair < begin) continue;
    std::uint32_t b[4];
    if constexpr (kStraight)
      ldmatrix_x4_trans(b, fragment_address<kRowPitch, true>(tile, 16 * step, 16 * pair));
    else
      ldmatrix_x4(b, fragment_address<kRowPitch, false>(tile, 16 * pair, 16 * step));
    mma_m16n8k16<T>(c[2 * pair], part.high, b[0], b[1]);
    mma_m16n8k16<T>(c[2 * pair + 1], part.high, b[2], b[3]);
    if constexpr (kHighOnly) continue;
    mma_m16n8k16<T>(c[2 * pair], part.low, b[0], b[1]);
    mma_m16n8k16<T>(c[2 * pair + 1], part.low, b[2], b[3]);
  }
}

// Starts the asynchronous copy of channels [first, first + kWidth) of a chunk's rows into a tile.
template <int kWidth>
__device__ void load_channels(char* tile, const MixerArguments& a, RecurrenceChunk chunk,
                              std::int64_t first) {
  const auto* from = static_cast<const std::uint16_t*>(a.qkv) + first;
  load_tile_rows<kChunk, kWidth, kChunkThreads>(
      tile, HeadRows<const std::uint16_t, true>{from, a.channels, kWidth}, chunk.begin, chunk.rows);
}

template <typename T>
__device__ void store_split_value(T* matrix, int index, float value) {
  matrix[index] = from_float<T>(value);
  matrix[kChunk * kChunk + index] = from_float<T>(value - round_to_type<T>(value));
}

// Computes one column of T = (I + A)^-1 diag(b), see run_recurrence(), by forward substitution.
template <typename T>
__device__ void solve_triangular_column(const float* system, int column, float rate, T* matrix) {
  float x[kChunk] = {};
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    float sums[4] = {};
#pragma unroll
    for (int j = 0; j < i; j += 4) {
      const auto row = *reinterpret_cast<const float4*>(system + i * kSystemPitch + j);
      sums[0] = fmaf(row.x, x[j], sums[0]);
      sums[1] = fmaf(row.y, x[j + 1], sums[1]);
      sums[2] = fmaf(row.z, x[j + 2], sums[2]);
      sums[3] = fmaf(row.w, x[j + 3], sums[3]);
    }
    x[i] = (i == column ? 1.0f : 0.0f) - (sums[0] + sums[1]) - (sums[2] + sums[3]);
    store_split_value(matrix, i * kChunk + column, x[i] * rate);
  }
}

// Computes the matrices T and P and the decay factors (run_recurrence()) of one chunk and head.
template <typename T, int kKeys, bool kDelta>
__global__ void __launch_bounds__(kChunkThreads) chunk_matrices_kernel(MixerArguments a) {
  extern __shared__ __align__(16) char memory[];
  __shared__ double decays[kChunk];  // cumulative log decays; float64 for accurate differences
  __shared__ float rates[kChunk];
  const int heads = static_cast<int>(a.config.value_heads);
  const int head = static_cast<int>(blockIdx.x) % heads;
  const std::int64_t key = head / (heads / a.config.key_heads) * kKeys;
  const RecurrenceChunk chunk = a.chunks[blockIdx.x / heads];
  char* const keys = memory;
  char* const queries = keys + kChunk * kPitch<kKeys>;
  auto* const system = reinterpret_cast<float*>(queries + kChunk * kPitch<kKeys>);
  load_channels<kKeys>(queries, a, chunk, key);
  load_channels<kKeys>(keys, a, chunk, a.key_width + key);
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < kChunk) {
    double sum = 0.0;
    for (int i = 0; i <= min(thread, chunk.rows - 1); ++i)
      sum += static_cast<double>(a.log_decays[(chunk.begin + i) * a.config.value_heads + head]);
    decays[thread] = sum;
    rates[thread] = 0.0f;
    if (thread < chunk.rows)
      rates[thread] = a.rates[(chunk.begin + thread) * a.config.value_heads + head];
  }
  wait_for_copies();
  __syncthreads();
  const int row = thread / 32 * 16;  // first of the warp's 16 matrix rows
  float k_k[kTiles][4] = {}, q_k[kTiles][4] = {};
#pragma unroll
  for (int step = 0; step < kKeys / 16; ++step) {
    SplitFragment<T> rows;
    if constexpr (kDelta) {
      ldmatrix_x4(rows.high, fragment_address<kPitch<kKeys>, true>(keys, row, 16 * step));
      multiply_tile<T, kPitch<kKeys>, false, true>(k_k, rows, keys, step);
    }
    ldmatrix_x4(rows.high, fragment_address<kPitch<kKeys>, true>(queries, row, 16 * step));
    multiply_tile<T, kPitch<kKeys>, false, true>(q_k, rows, keys, step);
  }
  T* const matrices = static_cast<T*>(a.matrices) +
                      static_cast<std::int64_t>(blockIdx.x) * kMatrices<kDelta> * kChunk * kChunk;
#pragma unroll
  for (int e = 0; e < 4 * kTiles; ++e) {
    const int i = row + thread % 32 / 4 + e / 2 % 2 * 8;
    const int j = e / 4 * 8 + thread % 4 * 2 + e % 2;
    float decay = j <= i ? expf(static_cast<float>(decays[i] - decays[j])) : 0.0f;
    if constexpr (kDelta)
      system[i * kSystemPitch + j] = j < i ? rates[i] * decay * k_k[e / 4][e % 4] : 0.0f;
    else
      decay *= rates[j];
    store_split_value(matrices + (kMatrices<kDelta> - 2) * kChunk * kChunk, i * kChunk + j,
                      decay * q_k[e / 4][e % 4]);
  }
  __syncthreads();
  if (thread >= kChunk) return;
  float* const factors = a.factors + static_cast<std::int64_t>(blockIdx.x) * 2 * kChunk;
  factors[thread] = expf(static_cast<float>(decays[thread]));
  factors[kChunk + thread] = expf(static_cast<float>(decays[kChunk - 1] - decays[thread])) *
                             (kDelta ? 1.0f : rates[thread]);
  if constexpr (kDelta) solve_triangular_column(system, thread, rates[thread], matrices);
}

// Recurrence of a head for kTile state columns. Matrices are transposed: a warp holds 16 columns of
// the state as (16, d_key) and 16 columns of w and output as (16, chunk).
template <typename T, int kKeys, bool kDelta>
struct ChunkRecurrence {
  static constexpr int kKeyPitch = kPitch<kKeys>;
  static constexpr int kTilePitch = kPitch<kChunk>;
  static constexpr int kMatrixBytes = kChunk * kTilePitch;
  struct ChunkStage {
    char keys[kChunk * kKeyPitch];
    char queries[kChunk * kKeyPitch];
    char matrices[kMatrices<kDelta> * kMatrixBytes];
    char values[kChunk * kTilePitch];
    float factors[2 * kChunk];
  };
  const MixerArguments& a;
  int head;
  int column;  // first of the block
  int lane;
  int first;  // first column of the warp in the block
  float state[kKeys / 8][4] = {};

  // Starts the copies of a chunk.
  __device__ void load_stage(ChunkStage& stage, std::int64_t number) const {
    const auto& c = a.config;
    const RecurrenceChunk chunk = a.chunks[number];
    const auto key = head / (c.value_heads / c.key_heads) * kKeys;
    load_channels<kKeys>(stage.queries, a, chunk, key);
    load_channels<kKeys>(stage.keys, a, chunk, a.key_width + key);
    load_channels<kTile>(stage.values, a, chunk, 2 * a.key_width + head * c.d_value + column);
    const auto at = number * c.value_heads + head;
    const auto* from =
        static_cast<const std::uint16_t*>(a.matrices) + at * kMatrices<kDelta> * kChunk * kChunk;
    load_tile_rows<kMatrices<kDelta> * kChunk, kChunk, kChunkThreads>(
        stage.matrices, HeadRows<const std::uint16_t, true>{from, kChunk, kChunk}, 0,
        kMatrices<kDelta> * kChunk);
    const int four = static_cast<int>(threadIdx.x) * 4;
    if (four < 2 * kChunk)
      copy_async(shared_address(reinterpret_cast<char*>(stage.factors + four)),
                 a.factors + at * 2 * kChunk + four, true);
  }

  // Calls change(value, address) for each state value of this thread, in row `number` of a.states.
  template <typename Change>
  __device__ void for_each_state_value(std::int64_t number, Change change) {
    float* const at = a.states + (number * a.config.value_heads + head) * kKeys * a.config.d_value;
#pragma unroll
    for (int e = 0; e < kKeys / 2; ++e)
      change(state[e / 4][e % 4],
             at + chunk_position(e) * a.config.d_value + column + first + lane / 4 + e / 2 % 2 * 8);
  }

  // Computes the output (16, chunk) of a chunk and updates the state.
  __device__ void run_chunk(const ChunkStage& stage, float (&output)[kTiles][4]) {
    float w[kTiles][4] = {};
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      const SplitFragment<T> part(state[2 * step], state[2 * step + 1]);
      if constexpr (kDelta) multiply_tile<T, kKeyPitch, false, false>(w, part, stage.keys, step);
      multiply_tile<T, kKeyPitch, false, false>(output, part, stage.queries, step);
    }
    combine_with_values(stage, w, output);
    if constexpr (kDelta) {
      float solved[kTiles][4] = {};
      add_triangular_product(stage.matrices, w, solved);
#pragma unroll
      for (int e = 0; e < 4 * kTiles; ++e) w[e / 4][e % 4] = solved[e / 4][e % 4];
    }
    add_triangular_product(stage.matrices + (kMatrices<kDelta> - 2) * kMatrixBytes, w, output);
#pragma unroll
    for (int e = 0; e < 4 * kTiles; ++e)
      w[e / 4][e % 4] *= stage.factors[kChunk + chunk_position(e)];
#pragma unroll
    for (int e = 0; e < kKeys / 2; ++e) state[e / 4][e % 4] *= stage.factors[kChunk - 1];
#pragma unroll
    for (int step = 0; step < kChunk / 16; ++step)
      multiply_tile<T, kKeyPitch, true, false>(
          state, SplitFragment<T>(w[2 * step], w[2 * step + 1]), stage.keys, step);
  }

  // Position in the chunk (or key channel of the state) of accumulator element e of this lane.
  __device__ int chunk_position(int e) const {
    return e / 4 * 8 + lane % 4 * 2 + e % 2;
  }

  // Applies the decay factors e^c and the values v. Delta rule: w = v - e^c w and output = e^c
  // output. Mamba 2: w = v and output = e^c output + D v.
  __device__ void combine_with_values(const ChunkStage& stage, float (&w)[kTiles][4],
                                      float (&output)[kTiles][4]) const {
    const float skip = a.vectors.skip == nullptr ? 0.0f : a.vectors.skip[head];
#pragma unroll
    for (int pair = 0; pair < kTiles / 2; ++pair) {
      std::uint32_t v[4];
      ldmatrix_x4_trans(v, fragment_address<kTilePitch, false>(stage.values, 16 * pair, first));
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int e = 8 * pair + i;
        const auto values = reinterpret_cast<const Pack<T, 2>&>(v[i / 2]);
        const float factor = stage.factors[chunk_position(e)];
        const float value = to_float(values.values[i % 2]);
        w[e / 4][e % 4] = value - factor * w[e / 4][e % 4];
        output[e / 4][e % 4] *= factor;
        if constexpr (!kDelta) output[e / 4][e % 4] += skip * value;
      }
    }
  }

  // Adds x Mᵀ to y, where `matrix` holds M: lower triangular (chunk, chunk), stored as high part +
  // low part. In Mamba 2, x = v is exact in 16 bits, so the low part of x is skipped.
  __device__ void add_triangular_product(const char* matrix, const float (&x)[kTiles][4],
                                         float (&y)[kTiles][4]) const {
#pragma unroll
    for (int step = 0; step < kChunk / 16; ++step) {
      const SplitFragment<T> part(x[2 * step], x[2 * step + 1]);
      multiply_tile<T, kTilePitch, false, !kDelta>(y, part, matrix, step, step);
      multiply_tile<T, kTilePitch, false, true>(y, part, matrix + kMatrixBytes, step, step);
    }
  }

  // Writes the warp's output to rows of `to`, staged in the shared memory that held its values.
  __device__ void store_output(ChunkStage& stage, const float (&output)[kTiles][4], T* to,
                               int rows) const {
    const float scale = kDelta ? rsqrtf(static_cast<float>(kKeys)) : 1.0f;
    __syncwarp();
#pragma unroll
    for (int e = 0; e < 4 * kTiles; ++e)
      reinterpret_cast<T*>(stage.values +
                           chunk_position(e) * kTilePitch)[first + lane / 4 + e / 2 % 2 * 8] =
          from_float<T>(output[e / 4][e % 4] * scale);
    __syncwarp();
    for (int item = lane; item < 2 * rows; item += 32) {
      const int row = item / 2, at = first + item % 2 * 8;
      *reinterpret_cast<uint4*>(to + row * a.value_width + at) =
          *reinterpret_cast<const uint4*>(stage.values + row * kTilePitch + at * 2);
    }
  }
};

// Runs the chunks of a sequence in order; one block per sequence, head and kTile state columns.
template <typename T, int kKeys, bool kDelta>
__global__ void __launch_bounds__(kChunkThreads) chunk_recurrence_kernel(MixerArguments a) {
  extern __shared__ __align__(16) char memory[];
  using Recurrence = ChunkRecurrence<T, kKeys, kDelta>;
  auto* const stages = reinterpret_cast<typename Recurrence::ChunkStage*>(memory);
  const int heads = static_cast<int>(a.config.value_heads);
  const int tiles = static_cast<int>(a.config.d_value) / kTile;
  const MixerSequence s = a.sequences[blockIdx.x / tiles / heads];
  if (s.first_chunk < 0) return;
  Recurrence recurrence{.a = a,
                        .head = static_cast<int>(blockIdx.x) / tiles % heads,
                        .column = static_cast<int>(blockIdx.x) % tiles * kTile,
                        .lane = static_cast<int>(threadIdx.x) % 32,
                        .first = static_cast<int>(threadIdx.x) / 32 * 16};
  recurrence.load_stage(stages[0], s.first_chunk);
  commit_copy_group();
  if (s.past_row >= 0)
    recurrence.for_each_state_value(s.past_row, [](float& x, const float* from) { x = *from; });
  T* to = static_cast<T*>(a.output) + s.begin * a.value_width + recurrence.head * a.config.d_value +
          recurrence.column;
  for (int begin = 0, i = 0; begin < s.length; begin += kChunk, ++i, to += kChunk * a.value_width) {
    if (begin + kChunk < s.length)
      recurrence.load_stage(stages[(i + 1) % 2], s.first_chunk + i + 1);
    commit_copy_group();
    wait_for_older_copy_groups<1>();
    __syncthreads();
    float output[kTiles][4] = {};
    recurrence.run_chunk(stages[i % 2], output);
    recurrence.store_output(stages[i % 2], output, to, min(kChunk, s.length - begin));
    __syncthreads();
  }
  if (s.next_row >= 0)
    recurrence.for_each_state_value(s.next_row, [](float& x, float* to) { *to = x; });
}

template <typename T, int kKeys, bool kDelta>
void launch_chunk_kernels(const MixerArguments& a, cudaStream_t stream) {
  const auto& c = a.config;
  constexpr auto kShared = 2 * sizeof(typename ChunkRecurrence<T, kKeys, kDelta>::ChunkStage);
  static_assert(kShared <= recurrence_shared_bytes(kKeys));
  launch_with_shared_memory(
      "compute the matrices of chunks", chunk_matrices_kernel<T, kKeys, kDelta>,
      a.chunk_count * c.value_heads, kChunkThreads,
      2 * kChunk * kPitch<kKeys> + (kDelta ? kChunk * kSystemPitch * 4 : 0), stream, a);
  launch_with_shared_memory("run a recurrence in chunks", chunk_recurrence_kernel<T, kKeys, kDelta>,
                            a.sequence_count * c.value_heads * (c.d_value / kTile), kChunkThreads,
                            static_cast<int>(kShared), stream, a);
}

}  // namespace

// Instantiates the kernels for the mixers, types and key widths that has_chunked_kernel() accepts.
void run_recurrence_in_chunks(const MixerArguments& a, cudaStream_t stream) {
  if (a.config.kind == Mixer::mamba2)
    return dispatch_width<64, 128, 256>(a.config.d_key, [&](auto keys) {
      launch_chunk_kernels<__nv_bfloat16, decltype(keys)::value, false>(a, stream);
    });
  dispatch_16bit_type(a.dtype, [&](auto type) {
    dispatch_width<64, 96, 128>(a.config.d_key, [&](auto keys) {
      launch_chunk_kernels<decltype(type), decltype(keys)::value, true>(a, stream);
    });
  });
}

}  // namespace qkscope::cuda
