#include "engine/device/cuda/elements.cuh"
#include "engine/device/cuda/mixer/delta_kernels.h"
#include "engine/device/cuda/tensor_core.cuh"
#include "engine/device/delta_plan.h"

namespace qkscope::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kConvolvedRows = 16;  // consecutive rows of a head that one warp convolves
constexpr int kColumns = 16;        // columns of the state in a block of the token kernel
constexpr int kLanesPerColumn = 8;
constexpr int kWidest = static_cast<int>(kCudaDeltaWidest);

__device__ float sigmoid(float x) {
  return 1.0f / (1.0f + expf(-x));
}

// One warp: a head of q, k or v of one row. The window of the last row of a sequence is kept.
template <typename T, int V>
__device__ void convolve_head(const DeltaArguments& a, std::int64_t row, int head, int lane) {
  constexpr int kPacks = kWidest / 32 / V;
  const auto& c = a.config;
  const int keys = static_cast<int>(2 * c.key_heads);
  const bool is_value = head >= keys;
  const auto width = static_cast<int>(is_value ? c.d_value : c.d_key);
  const std::int64_t first =
      is_value ? 2 * a.key_width + (head - keys) * c.d_value : head * c.d_key;
  const std::int64_t channels = a.channels;
  const int taps = static_cast<int>(c.taps);
  const DeltaSequence s = a.sequences[a.row_sequences[row]];
  const int offset = static_cast<int>(row - s.begin);
  const bool keeps = s.next_row >= 0 && offset == s.length - 1;
  float y[kPacks][V] = {};
  float squares = 0.0f;
#pragma unroll
  for (int j = 0; j < kPacks; ++j) {
    const int at = (lane + 32 * j) * V;
    if (at >= width) continue;
    for (int tap = 0; tap < taps; ++tap) {
      const int back = taps - 1 - tap;
      Pack<float, V> x = {};
      if (back <= offset) {
        const auto* from = static_cast<const T*>(a.projected) + (row - back) * a.stride + first;
        const auto values = *reinterpret_cast<const Pack<T, V>*>(from + at);
        for (int i = 0; i < V; ++i) x.values[i] = to_float(values.values[i]);
      } else if (s.past_row >= 0) {
        const auto* from =
            a.inputs + ((s.past_row + 1) * (c.taps - 1) + offset - back) * channels + first;
        x = *reinterpret_cast<const Pack<float, V>*>(from + at);
      }
      const auto weight =
          *reinterpret_cast<const Pack<float, V>*>(a.convolution + tap * channels + first + at);
      for (int i = 0; i < V; ++i) y[j][i] = fmaf(x.values[i], weight.values[i], y[j][i]);
      if (keeps && tap > 0)
        *reinterpret_cast<Pack<float, V>*>(
            a.inputs + (s.next_row * (c.taps - 1) + tap - 1) * channels + first + at) = x;
    }
    for (int i = 0; i < V; ++i) {
      y[j][i] *= sigmoid(y[j][i]);  // SiLU
      squares = fmaf(y[j][i], y[j][i], squares);
    }
  }
  const float scale = is_value ? 1.0f : rsqrtf(warp_sum(squares) + 1e-6f);
#pragma unroll
  for (int j = 0; j < kPacks; ++j) {
    const int at = (lane + 32 * j) * V;
    if (at >= width) continue;
    Pack<T, V> result;
    for (int i = 0; i < V; ++i) result.values[i] = from_float<T>(y[j][i] * scale);
    *reinterpret_cast<Pack<T, V>*>(static_cast<T*>(a.qkv) + row * channels + first + at) = result;
  }
}

template <typename T>
__device__ void compute_rates(const DeltaArguments& a, std::int64_t row, int lane) {
  const auto& c = a.config;
  const T* b = static_cast<const T*>(a.projected) + row * a.stride + a.channels + a.value_width;
  for (std::int64_t head = lane; head < c.value_heads; head += 32) {
    const float x = to_float(b[c.value_heads + head]) + a.dt_bias[head];
    const float softplus = log1pf(expf(-fabsf(x))) + fmaxf(x, 0.0f);
    a.rates[row * c.value_heads + head] =
        static_cast<float>(c.rate_scale) * sigmoid(to_float(b[head]));
    a.log_decays[row * c.value_heads + head] = -expf(a.a_log[head]) * softplus;
  }
}

// Each warp: one head, or the rates of all heads, of kConvolvedRows rows.
template <typename T, int V>
__global__ void convolve_kernel(DeltaArguments a) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int heads = static_cast<int>(2 * a.config.key_heads + a.config.value_heads);
  const int blocks = heads / kWarps + 1;
  const int head = static_cast<int>(blockIdx.x) % blocks * kWarps + threadIdx.x / 32;
  if (head > heads) return;
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) / blocks * kConvolvedRows;
  for (auto row = begin; row < min(begin + kConvolvedRows, a.rows); ++row)
    if (head < heads)
      convolve_head<T, V>(a, row, head, lane);
    else
      compute_rates<T>(a, row, lane);
}

template <typename T>
__global__ void gate_kernel(DeltaArguments a) {
  const auto& c = a.config;
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (at >= a.rows * c.value_heads) return;
  T* y = static_cast<T*>(a.output) + at * c.d_value;
  const T* z = static_cast<const T*>(a.projected) + at / c.value_heads * a.stride + a.channels +
               at % c.value_heads * c.d_value;
  float squares = 0.0f;
  for (std::int64_t i = threadIdx.x % 32; i < c.d_value; i += 32) {
    const float value = to_float(y[i]);
    squares = fmaf(value, value, squares);
  }
  const float scale =
      rsqrtf(warp_sum(squares) / static_cast<float>(c.d_value) + static_cast<float>(c.norm_eps));
  for (std::int64_t i = threadIdx.x % 32; i < c.d_value; i += 32) {
    const float gate = to_float(z[i]);
    y[i] = from_float<T>(to_float(y[i]) * scale * a.norm[i] * (gate * sigmoid(gate)));
  }
}

__device__ float sum_of_column(float x) {
  for (int offset = kLanesPerColumn / 2; offset > 0; offset /= 2)
    x += __shfl_xor_sync(kAllLanes, x, offset);
  return x;
}

// Sequences without chunks, and `row_states` of all; one block per sequence, head and kColumns
// columns of the state. Lane l of the eight lanes of a column holds the keys l, l + 8, ...
template <typename T, int kPerLane>
__global__ void token_kernel(DeltaArguments a) {
  const auto& c = a.config;
  const int heads = static_cast<int>(c.value_heads);
  const int tiles = static_cast<int>((c.d_value + kColumns - 1) / kColumns);
  const int head = static_cast<int>(blockIdx.x) / tiles % heads;
  const DeltaSequence s = a.sequences[blockIdx.x / tiles / heads];
  const bool is_short = s.first_chunk < 0;
  if (!is_short && a.state_row_count == 0) return;
  const int lane = static_cast<int>(threadIdx.x) % kLanesPerColumn;
  const int column =
      static_cast<int>(blockIdx.x) % tiles * kColumns + threadIdx.x / kLanesPerColumn;
  const bool inside = column < c.d_value;
  float state[kPerLane] = {};
  const auto visit_state = [&](auto change) {
#pragma unroll
    for (int i = 0; i < kPerLane; ++i)
      if (inside && lane + kLanesPerColumn * i < c.d_key)
        change(state[i], lane + kLanesPerColumn * i);
  };
  const auto store_state = [&](float* states, std::int64_t number) {
    float* to = states + (number * heads + head) * c.d_key * c.d_value + column;
    visit_state([&](float& value, int key) { to[key * c.d_value] = value; });
  };
  if (s.past_row >= 0)
    visit_state([&](float& value, int key) {
      value = a.states[((s.past_row * heads + head) * c.d_key + key) * c.d_value + column];
    });
  const T* k = static_cast<const T*>(a.qkv) + s.begin * a.channels + a.key_width +
               head / (c.value_heads / c.key_heads) * c.d_key;
  const T* v = static_cast<const T*>(a.qkv) + s.begin * a.channels + 2 * a.key_width +
               head * c.d_value + column;
  const float scale = rsqrtf(static_cast<float>(c.d_key));
  std::int64_t wanted = 0;
  while (wanted < a.state_row_count && a.state_rows[wanted] < s.begin) ++wanted;
  for (std::int64_t row = s.begin; row < s.begin + s.length;
       ++row, k += a.channels, v += a.channels) {
    const float decay = expf(a.log_decays[row * heads + head]);
    float predicted = 0.0f, output = 0.0f;
    visit_state([&](float& x, int key) { predicted = fmaf(x, to_float(k[key]), predicted); });
    predicted = decay * sum_of_column(predicted);
    const float written = a.rates[row * heads + head] * (inside ? to_float(*v) - predicted : 0.0f);
    visit_state([&](float& x, int key) {
      x = fmaf(to_float(k[key]), written, decay * x);
      output = fmaf(x, to_float(k[key - a.key_width]), output);
    });
    output = scale * sum_of_column(output);
    if (is_short && inside && lane == 0)
      static_cast<T*>(a.output)[(row * heads + head) * c.d_value + column] = from_float<T>(output);
    while (wanted < a.state_row_count && a.state_rows[wanted] == row)
      store_state(a.row_states, wanted++);
  }
  if (is_short && s.next_row >= 0) store_state(a.states, s.next_row);
}

constexpr int kChunk = static_cast<int>(kCudaDeltaChunk);
constexpr int kTile = 64;           // columns of the state in a block of the chunk kernel
constexpr int kChunkThreads = 128;  // four warps
constexpr int kTilePitch = kPitch<kChunk>;
constexpr int kMatrixPitch = 72;  // floats
constexpr int kMatrices = 4;

// Address for load_matrices() of this lane: 16 x 16 values from (row, column) on. The order of the
// four 8 x 8 matrices is row by row, or with kColumnFirst column by column.
template <int kRowPitch, bool kColumnFirst>
__device__ __forceinline__ std::uint32_t fragment_address(const char* tile, int row, int column) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int matrix = lane / 8;
  const int down = kColumnFirst ? matrix % 2 : matrix / 2;
  const int across = kColumnFirst ? matrix / 2 : matrix % 2;
  return shared_address(tile + (row + 8 * down + lane % 8) * kRowPitch + (column + 8 * across) * 2);
}

// A 16 x 16 operand in float32 precision: the sum of two fragments of T. `left` and `right` are
// accumulators of its columns 0 to 7 and 8 to 15.
template <typename T>
struct SplitFragment {
  std::uint32_t high[4];
  std::uint32_t low[4];

  __device__ __forceinline__ SplitFragment(const float (&left)[4], const float (&right)[4]) {
    split(left[0], left[1], 0);
    split(left[2], left[3], 1);
    split(right[0], right[1], 2);
    split(right[2], right[3], 3);
  }
  __device__ __forceinline__ void split(float x, float y, int i) {
    high[i] = pack_pair<T>(x, y);
    low[i] = pack_pair<T>(x - round_to_type<T>(x), y - round_to_type<T>(y));
  }
  // c += this times b, for b with values of T.
  __device__ __forceinline__ void multiply(float (&c)[4], std::uint32_t b0,
                                           std::uint32_t b1) const {
    multiply_add<T>(c, high, b0, b1);
    multiply_add<T>(c, low, b0, b1);
  }
};

// Starts the copy of channels [first, first + kWidth) of the rows of a chunk into a tile.
template <int kWidth>
__device__ void load_channels(char* tile, const DeltaArguments& a, DeltaChunk chunk,
                              std::int64_t first) {
  load_tile_rows<kChunk, kWidth, kChunkThreads>(
      tile,
      HeadRows<const std::uint16_t, true>{static_cast<const std::uint16_t*>(a.qkv) + first,
                                          a.channels, kWidth},
      chunk.begin, chunk.rows);
}

// Products of 16 rows of `left` with the rows of `right` that are not above them.
template <typename T, int kWidth>
__device__ void multiply_lower(const char* left, const char* right, int warp,
                               float (&c)[kChunk / 8][4]) {
#pragma unroll
  for (int step = 0; step < kWidth / 16; ++step) {
    std::uint32_t rows[4];
    load_matrices(rows, fragment_address<kPitch<kWidth>, true>(left, 16 * warp, 16 * step));
#pragma unroll
    for (int pair = 0; pair < kChunk / 16; ++pair) {
      if (pair > warp) continue;
      std::uint32_t b[4];
      load_matrices(b, fragment_address<kPitch<kWidth>, false>(right, 16 * pair, 16 * step));
      multiply_add<T>(c[2 * pair], rows, b[0], b[1]);
      multiply_add<T>(c[2 * pair + 1], rows, b[2], b[3]);
    }
  }
}

template <typename T>
__device__ void store_split(T* matrix, int index, float value) {
  matrix[index] = from_float<T>(value);
  matrix[kChunk * kChunk + index] = from_float<T>(value - round_to_type<T>(value));
}

// Column `column` of T = (I + A)^-1 diag(b) by forward substitution.
template <typename T>
__device__ void solve_column(const float* system, int column, float rate, T* matrix) {
  float x[kChunk] = {};
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    float sums[4] = {};
#pragma unroll
    for (int j = 0; j < i; j += 4) {
      const auto row = *reinterpret_cast<const float4*>(system + i * kMatrixPitch + j);
      sums[0] = fmaf(row.x, x[j], sums[0]);
      sums[1] = fmaf(row.y, x[j + 1], sums[1]);
      sums[2] = fmaf(row.z, x[j + 2], sums[2]);
      sums[3] = fmaf(row.w, x[j + 3], sums[3]);
    }
    x[i] = (i == column ? 1.0f : 0.0f) - (sums[0] + sums[1]) - (sums[2] + sums[3]);
    store_split(matrix, i * kChunk + column, x[i] * rate);
  }
}

// Matrices and factors of one chunk and head.
template <typename T, int kKeys>
__global__ void __launch_bounds__(kChunkThreads) chunk_matrices_kernel(DeltaArguments a) {
  extern __shared__ __align__(16) char memory[];
  __shared__ double decays[kChunk];  // cumulated logarithms, float64: differences stay accurate
  __shared__ float rates[kChunk];
  const auto& c = a.config;
  const int heads = static_cast<int>(c.value_heads);
  const int head = static_cast<int>(blockIdx.x) % heads;
  const auto key_head = head / (c.value_heads / c.key_heads);
  const DeltaChunk chunk = a.chunks[blockIdx.x / heads];
  char* const keys = memory;
  char* const queries = keys + kChunk * kPitch<kKeys>;
  auto* const system = reinterpret_cast<float*>(queries + kChunk * kPitch<kKeys>);
  load_channels<kKeys>(queries, a, chunk, key_head * kKeys);
  load_channels<kKeys>(keys, a, chunk, a.key_width + key_head * kKeys);
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < kChunk) {
    double sum = 0.0;
    for (int i = 0; i <= min(thread, chunk.rows - 1); ++i)
      sum += static_cast<double>(a.log_decays[(chunk.begin + i) * c.value_heads + head]);
    decays[thread] = sum;
    rates[thread] =
        thread < chunk.rows ? a.rates[(chunk.begin + thread) * c.value_heads + head] : 0.0f;
  }
  wait_for_copies();
  __syncthreads();
  const int warp = thread / 32;
  float k_k[kChunk / 8][4] = {};
  float q_k[kChunk / 8][4] = {};
  multiply_lower<T, kKeys>(keys, keys, warp, k_k);
  multiply_lower<T, kKeys>(queries, keys, warp, q_k);
  T* const matrices = static_cast<T*>(a.matrices) +
                      static_cast<std::int64_t>(blockIdx.x) * kMatrices * kChunk * kChunk;
#pragma unroll
  for (int tile = 0; tile < kChunk / 8; ++tile)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int i = 16 * warp + thread % 32 / 4 + e / 2 * 8;
      const int j = 8 * tile + thread % 4 * 2 + e % 2;
      const float decay = j <= i ? expf(static_cast<float>(decays[i] - decays[j])) : 0.0f;
      system[i * kMatrixPitch + j] = j < i ? rates[i] * decay * k_k[tile][e] : 0.0f;
      store_split(matrices + 2 * kChunk * kChunk, i * kChunk + j, decay * q_k[tile][e]);
    }
  __syncthreads();
  if (thread >= kChunk) return;
  float* const factors = a.factors + static_cast<std::int64_t>(blockIdx.x) * 2 * kChunk;
  factors[thread] = expf(static_cast<float>(decays[thread]));
  factors[kChunk + thread] = expf(static_cast<float>(decays[kChunk - 1] - decays[thread]));
  solve_column(system, thread, rates[thread], matrices);
}

// Shared memory of one chunk in the chunk kernel.
template <typename T, int kKeys>
struct ChunkStage {
  static constexpr int kBytes = 2 * kChunk * kPitch<kKeys> + (kMatrices + 1) * kChunk * kTilePitch +
                                2 * kChunk * static_cast<int>(sizeof(float));
  char* keys;
  char* queries;
  char* matrices;
  char* values;
  float* factors;

  __device__ explicit ChunkStage(char* memory)
      : keys(memory),
        queries(keys + kChunk * kPitch<kKeys>),
        matrices(queries + kChunk * kPitch<kKeys>),
        values(matrices + kMatrices * kChunk * kTilePitch),
        factors(reinterpret_cast<float*>(values + kChunk * kTilePitch)) {}

  // Starts the copies of a chunk of a head; `column` is the first column of the state.
  __device__ void load(const DeltaArguments& a, std::int64_t number, int head, int column) const {
    const auto& c = a.config;
    const DeltaChunk chunk = a.chunks[number];
    const auto key_head = head / (c.value_heads / c.key_heads);
    const auto at = number * c.value_heads + head;
    load_channels<kKeys>(queries, a, chunk, key_head * kKeys);
    load_channels<kKeys>(keys, a, chunk, a.key_width + key_head * kKeys);
    load_channels<kTile>(values, a, chunk, 2 * a.key_width + head * c.d_value + column);
    const auto* from =
        static_cast<const std::uint16_t*>(a.matrices) + at * kMatrices * kChunk * kChunk;
    load_tile_rows<kMatrices * kChunk, kChunk, kChunkThreads>(
        matrices, HeadRows<const std::uint16_t, true>{from, kChunk, kChunk}, 0, kMatrices * kChunk);
    const int thread = static_cast<int>(threadIdx.x);
    if (thread < kChunk / 2)
      copy_async(shared_address(reinterpret_cast<char*>(factors + 4 * thread)),
                 a.factors + at * 2 * kChunk + 4 * thread, true);
  }
};

// The transposed recurrence of one head for 16 columns of the state, which one warp holds: state is
// (16, d_key), w and output are (16, chunk).
template <typename T, int kKeys>
struct WarpRecurrence {
  using Stage = ChunkStage<T, kKeys>;
  static constexpr int kTiles = kChunk / 8;
  float state[kKeys / 8][4] = {};
  int lane;
  int first;  // first of the 16 columns within the tile

  // Visits the state: change(value, key, column of the tile).
  template <typename Change>
  __device__ void visit_state(Change change) {
#pragma unroll
    for (int tile = 0; tile < kKeys / 8; ++tile)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        change(state[tile][e], 8 * tile + lane % 4 * 2 + e % 2, first + lane / 4 + e / 2 * 8);
  }

  __device__ void run_chunk(const Stage& stage, float (&output)[kTiles][4]) {
    float w[kTiles][4] = {};
    multiply_by_state(stage, w, output);
    subtract_from_values(stage, w, output);
    float written[kTiles][4] = {};
    multiply_by_lower_matrix(stage.matrices, w, written);
    multiply_by_lower_matrix(stage.matrices + 2 * kChunk * kTilePitch, written, output);
    update_state(stage, written);
  }

  // w = (K S)', output = (Q S)'.
  __device__ void multiply_by_state(const Stage& stage, float (&w)[kTiles][4],
                                    float (&output)[kTiles][4]) const {
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      const SplitFragment<T> part(state[2 * step], state[2 * step + 1]);
#pragma unroll
      for (int pair = 0; pair < kTiles / 2; ++pair) {
        std::uint32_t b[4];
        load_matrices(b, fragment_address<kPitch<kKeys>, false>(stage.keys, 16 * pair, 16 * step));
        part.multiply(w[2 * pair], b[0], b[1]);
        part.multiply(w[2 * pair + 1], b[2], b[3]);
        load_matrices(b,
                      fragment_address<kPitch<kKeys>, false>(stage.queries, 16 * pair, 16 * step));
        part.multiply(output[2 * pair], b[0], b[1]);
        part.multiply(output[2 * pair + 1], b[2], b[3]);
      }
    }
  }

  // w = v - e^c w, output = e^c output.
  __device__ void subtract_from_values(const Stage& stage, float (&w)[kTiles][4],
                                       float (&output)[kTiles][4]) const {
#pragma unroll
    for (int pair = 0; pair < kTiles / 2; ++pair) {
      std::uint32_t v[4];
      load_matrices_transposed(v,
                               fragment_address<kTilePitch, false>(stage.values, 16 * pair, first));
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int tile = 2 * pair + i / 4;
        const float factor = stage.factors[8 * tile + lane % 4 * 2 + i % 2];
        const auto values = reinterpret_cast<const Pack<T, 2>&>(v[i / 2]);
        w[tile][i % 4] = to_float(values.values[i % 2]) - factor * w[tile][i % 4];
        output[tile][i % 4] *= factor;
      }
    }
  }

  // y += x M', for a lower triangular M (chunk, chunk) that is the sum of two matrices.
  __device__ void multiply_by_lower_matrix(const char* matrix, const float (&x)[kTiles][4],
                                           float (&y)[kTiles][4]) const {
#pragma unroll
    for (int step = 0; step < kChunk / 16; ++step) {
      const SplitFragment<T> part(x[2 * step], x[2 * step + 1]);
#pragma unroll
      for (int pair = step; pair < kTiles / 2; ++pair) {
        std::uint32_t b[4];
        load_matrices(b, fragment_address<kTilePitch, false>(matrix, 16 * pair, 16 * step));
        part.multiply(y[2 * pair], b[0], b[1]);
        part.multiply(y[2 * pair + 1], b[2], b[3]);
        load_matrices(b, fragment_address<kTilePitch, false>(matrix + kChunk * kTilePitch,
                                                             16 * pair, 16 * step));
        multiply_add<T>(y[2 * pair], part.high, b[0], b[1]);
        multiply_add<T>(y[2 * pair + 1], part.high, b[2], b[3]);
      }
    }
  }

  // state = e^(c_last) state + (e^(c_last - c) w)' K.
  __device__ void update_state(const Stage& stage, float (&w)[kTiles][4]) {
    const float decay = stage.factors[kChunk - 1];
    visit_state([&](float& value, int, int) { value *= decay; });
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        w[tile][e] *= stage.factors[kChunk + 8 * tile + lane % 4 * 2 + e % 2];
#pragma unroll
    for (int step = 0; step < kChunk / 16; ++step) {
      const SplitFragment<T> part(w[2 * step], w[2 * step + 1]);
#pragma unroll
      for (int pair = 0; pair < kKeys / 16; ++pair) {
        std::uint32_t b[4];
        load_matrices_transposed(
            b, fragment_address<kPitch<kKeys>, true>(stage.keys, 16 * step, 16 * pair));
        part.multiply(state[2 * pair], b[0], b[1]);
        part.multiply(state[2 * pair + 1], b[2], b[3]);
      }
    }
  }

  // Writes the output of this warp's columns over its part of the values, and from there to `to`,
  // the first column of the tile in the first row of the chunk.
  __device__ void store_output(const Stage& stage, const float (&output)[kTiles][4], float scale,
                               T* to, std::int64_t stride, int rows) const {
    __syncwarp();
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int row = 8 * tile + lane % 4 * 2 + e % 2;
        const int column = first + lane / 4 + e / 2 * 8;
        reinterpret_cast<T*>(stage.values + row * kTilePitch)[column] =
            from_float<T>(output[tile][e] * scale);
      }
    __syncwarp();
    for (int item = lane; item < 2 * rows; item += 32) {
      const int row = item / 2, column = first + item % 2 * 8;
      *reinterpret_cast<uint4*>(to + row * stride + column) =
          *reinterpret_cast<const uint4*>(stage.values + row * kTilePitch + column * 2);
    }
  }
};

// Walks the chunks of a sequence; one block per sequence, head and kTile columns of the state.
template <typename T, int kKeys>
__global__ void __launch_bounds__(kChunkThreads) chunk_kernel(DeltaArguments a) {
  extern __shared__ __align__(16) char memory[];
  using Stage = ChunkStage<T, kKeys>;
  const auto& c = a.config;
  const int heads = static_cast<int>(c.value_heads);
  const int tiles = static_cast<int>(c.d_value) / kTile;
  const int number = static_cast<int>(blockIdx.x);
  const int head = number / tiles % heads;
  const int column = number % tiles * kTile;
  const DeltaSequence s = a.sequences[number / tiles / heads];
  if (s.first_chunk < 0) return;
  const int chunks = (s.length + kChunk - 1) / kChunk;
  const auto stage = [&](int i) { return Stage(memory + i % 2 * Stage::kBytes); };
  stage(0).load(a, s.first_chunk, head, column);
  commit_copy_group();
  WarpRecurrence<T, kKeys> recurrence{.lane = static_cast<int>(threadIdx.x) % 32,
                                      .first = static_cast<int>(threadIdx.x) / 32 * 16};
  const auto state_of = [&](std::int64_t row) {
    return a.states + (row * c.value_heads + head) * kKeys * c.d_value + column;
  };
  if (s.past_row >= 0)
    recurrence.visit_state(
        [&](float& value, int key, int i) { value = state_of(s.past_row)[key * c.d_value + i]; });
  const float scale = rsqrtf(static_cast<float>(kKeys));
  for (int i = 0; i < chunks; ++i) {
    if (i + 1 < chunks) stage(i + 1).load(a, s.first_chunk + i + 1, head, column);
    commit_copy_group();
    wait_for_older_copy_groups<1>();
    __syncthreads();
    float output[kChunk / 8][4] = {};
    recurrence.run_chunk(stage(i), output);
    const std::int64_t begin = s.begin + i * kChunk;
    recurrence.store_output(
        stage(i), output, scale,
        static_cast<T*>(a.output) + (begin * c.value_heads + head) * c.d_value + column,
        a.value_width, min(kChunk, s.length - i * kChunk));
    __syncthreads();
  }
  if (s.next_row >= 0)
    recurrence.visit_state(
        [&](float& value, int key, int i) { state_of(s.next_row)[key * c.d_value + i] = value; });
}

template <typename T>
void run_chunks(const DeltaArguments& a, cudaStream_t stream) {
  const auto& c = a.config;
  dispatch_head_width<64, 96, 128>(c.d_key, [&](auto width) {
    constexpr int kKeys = decltype(width)::value;
    static_assert(2 * ChunkStage<T, kKeys>::kBytes <= kDeltaChunkSharedMemory);
    launch_with_shared_memory("compute matrices of a delta net", chunk_matrices_kernel<T, kKeys>,
                              a.chunk_count * c.value_heads, kChunkThreads,
                              2 * kChunk * kPitch<kKeys> + kChunk * kMatrixPitch * 4, stream, a);
    launch_with_shared_memory("run a delta net", chunk_kernel<T, kKeys>,
                              a.sequence_count * c.value_heads * (c.d_value / kTile), kChunkThreads,
                              2 * ChunkStage<T, kKeys>::kBytes, stream, a);
  });
}

}  // namespace

void convolve_and_normalize(const DeltaArguments& a, cudaStream_t stream) {
  const auto& c = a.config;
  const auto heads = 2 * c.key_heads + c.value_heads;
  const auto blocks = (a.rows + kConvolvedRows - 1) / kConvolvedRows * (heads / kWarps + 1);
  const bool in_fours = c.d_key % 4 == 0 && c.d_value % 4 == 0 && a.stride % 4 == 0;
  dispatch_element_type(a.dtype, [&](auto type) {
    using T = decltype(type);
    launch_with_shared_memory("convolve q, k and v",
                              in_fours ? convolve_kernel<T, 4> : convolve_kernel<T, 1>, blocks,
                              32 * kWarps, 0, stream, a);
  });
}

void delta_rule(const DeltaArguments& a, cudaStream_t stream) {
  const auto& c = a.config;
  if (a.chunk_count > 0)
    dispatch_16bit_type(a.dtype, [&](auto type) { run_chunks<decltype(type)>(a, stream); });
  if (!a.has_short_sequences && a.state_row_count == 0) return;
  const auto blocks = a.sequence_count * c.value_heads * ((c.d_value + kColumns - 1) / kColumns);
  dispatch_element_type(a.dtype, [&](auto type) {
    dispatch_head_width<32, 64, 128, kWidest>(c.d_key, [&](auto width) {
      launch_with_shared_memory(
          "run a delta net", token_kernel<decltype(type), decltype(width)::value / kLanesPerColumn>,
          blocks, kColumns * kLanesPerColumn, 0, stream, a);
    });
  });
}

void normalize_and_gate(const DeltaArguments& a, cudaStream_t stream) {
  const auto blocks = (a.rows * a.config.value_heads + kWarps - 1) / kWarps;
  dispatch_element_type(a.dtype, [&](auto type) {
    launch_with_shared_memory("gate a delta net", gate_kernel<decltype(type)>, blocks, 32 * kWarps,
                              0, stream, a);
  });
}

}  // namespace qkscope::cuda
