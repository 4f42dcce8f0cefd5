#include "engine/device/cuda/cuda_error.h"
#include "engine/device/cuda/elements.cuh"
#include "engine/device/cuda/heads.h"

namespace qkscope::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kMostPairs = 128;  // d_head up to 256

__device__ void turn_pair(float& a, float& b, float c, float s) {
  // Explicit intrinsics: the compiler must not choose which product is fused and which is rounded.
  const float turned = __fmaf_rn(a, c, -__fmul_rn(b, s));
  b = __fmaf_rn(b, c, __fmul_rn(a, s));
  a = turned;
}

// A lane holds kUnits units of P pairs of one head: A at `first`, B at `second`. With rotated
// halves the pairs are (A[i], B[i]); otherwise the 2P values of A and B are adjacent.
template <typename T, int P>
struct Unit {
  int pair = 0;  // the first of the P
  bool halves = false;
  int first = 0;
  int second = 0;

  __device__ Unit(int number, int half, bool interleaved)
      : pair(number * P),
        halves(pair < half && !interleaved),
        first(halves ? pair : 2 * pair),
        second(halves ? pair + half : 2 * pair + P) {}

  __device__ void load(const T* head, float* x) const {
    const auto a = *reinterpret_cast<const Pack<T, P>*>(head + first);
    const auto b = *reinterpret_cast<const Pack<T, P>*>(head + second);
#pragma unroll
    for (int i = 0; i < P; ++i) {
      x[i] = to_float(a.values[i]);
      x[P + i] = to_float(b.values[i]);
    }
  }

  __device__ void store(T* head, const float* x) const {
    Pack<T, P> a;
    Pack<T, P> b;
#pragma unroll
    for (int i = 0; i < P; ++i) {
      a.values[i] = from_float<T>(x[i]);
      b.values[i] = from_float<T>(x[P + i]);
    }
    *reinterpret_cast<Pack<T, P>*>(head + first) = a;
    *reinterpret_cast<Pack<T, P>*>(head + second) = b;
  }

  __device__ void weigh(float* x, const float* weight, float scale) const {
#pragma unroll
    for (int i = 0; i < P; ++i) {
      x[i] = rounded<T>(__fmul_rn(__fmul_rn(x[i], scale), weight[first + i]));
      x[P + i] = rounded<T>(__fmul_rn(__fmul_rn(x[P + i], scale), weight[second + i]));
    }
  }

  __device__ void turn(float* x, const T* cos, const T* sin) const {
#pragma unroll
    for (int i = 0; i < P; ++i) {
      const float c = to_float(cos[pair + i]);
      const float s = to_float(sin[pair + i]);
      if (halves)  // two branches keep x in registers
        turn_pair(x[i], x[P + i], c, s);
      else
        turn_pair(x[2 * i], x[2 * i + 1], c, s);
    }
  }
};

// One block per row; each warp takes one head at a time.
template <typename T, int P>
__global__ void heads_kernel(HeadsArguments a) {
  constexpr int kUnits = kMostPairs / 32 / P;  // of a lane
  const std::int64_t row = blockIdx.x;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int half = static_cast<int>(a.rotary.dim) / 2;
  const int units = static_cast<int>(a.d_head) / 2 / P;
  const int heads = static_cast<int>(a.n_heads + a.n_kv_heads);
  const T* cos = static_cast<const T*>(a.rotary.cos) + row * half;
  const T* sin = static_cast<const T*>(a.rotary.sin) + row * half;
  const float query_scale = a.query_scale == nullptr ? 1.0f : rounded<T>(a.query_scale[row]);
  for (int number = static_cast<int>(threadIdx.x) / 32; number < heads; number += kWarps) {
    const bool is_query = number < a.n_heads;
    T* head = is_query
                  ? static_cast<T*>(a.q) + row * a.row_stride + number * a.d_head
                  : static_cast<T*>(a.k) + row * a.row_stride + (number - a.n_heads) * a.d_head;
    float x[kUnits][2 * P];
    float squares = 0.0f;
#pragma unroll
    for (int j = 0; j < kUnits; ++j) {
      if (lane + 32 * j >= units) continue;
      Unit<T, P>(lane + 32 * j, half, a.interleaved).load(head, x[j]);
#pragma unroll
      for (int i = 0; i < 2 * P; ++i) squares = __fmaf_rn(x[j][i], x[j][i], squares);
    }
    const float* weight = is_query ? a.q_norm : a.k_norm;
    float scale = 1.0f;
    if (weight != nullptr) scale = rsqrtf(warp_sum(squares) / static_cast<float>(a.d_head) + a.eps);
#pragma unroll
    for (int j = 0; j < kUnits; ++j) {
      if (lane + 32 * j >= units) continue;
      const Unit<T, P> unit(lane + 32 * j, half, a.interleaved);
      if (weight != nullptr) unit.weigh(x[j], weight, scale);
      if (a.rotate && unit.pair < half) unit.turn(x[j], cos, sin);
      if (is_query)
#pragma unroll
        for (int i = 0; i < 2 * P; ++i) x[j][i] *= query_scale;
      unit.store(head, x[j]);
    }
  }
}

template <typename T>
__global__ void rotary_table_kernel(RotaryTableArguments a) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= a.rows * a.half) return;
  const std::int64_t row = index / a.half;
  const std::int64_t sequence = a.sequences[row];
  const float angle =
      static_cast<float>(a.positions[row]) * a.inverse[sequence * a.half + index % a.half];
  const float factor = a.factors[sequence];
  static_cast<T*>(a.cos)[index] = from_float<T>(cosf(angle) * factor);
  static_cast<T*>(a.sin)[index] = from_float<T>(sinf(angle) * factor);
}

// One warp per row and head.
template <typename T>
__global__ void sinks_kernel(SinkArguments a) {
  constexpr float kLn2 = 0.6931471805599453f;
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (at >= a.rows * a.n_heads) return;
  const float factor = 1.0f / (1.0f + expf(a.sinks[at % a.n_heads] - a.lse[at] * kLn2));
  T* z = static_cast<T*>(a.z) + at * a.d_head;
  for (std::int64_t i = threadIdx.x % 32; i < a.d_head; i += 32)
    z[i] = from_float<T>(to_float(z[i]) * factor);
}

}  // namespace

void finish_heads(const HeadsArguments& a, cudaStream_t stream) {
  if (a.rows == 0) return;
  const bool in_twos = a.d_head % 4 == 0 && a.rotary.dim % 4 == 0 && a.row_stride % 2 == 0;
  with_type(a.dtype, [&](auto type) {
    using T = decltype(type);
    const auto blocks = static_cast<unsigned>(a.rows);
    if (in_twos)
      heads_kernel<T, 2><<<blocks, 32 * kWarps, 0, stream>>>(a);
    else
      heads_kernel<T, 1><<<blocks, 32 * kWarps, 0, stream>>>(a);
  });
  check_launch("normalise and rotate q and k");
}

void apply_sinks(const SinkArguments& a, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((a.rows * a.n_heads + kWarps - 1) / kWarps);
  if (blocks == 0) return;
  with_type(a.dtype, [&](auto type) {
    sinks_kernel<decltype(type)><<<blocks, 32 * kWarps, 0, stream>>>(a);
  });
  check_launch("let sinks join the softmax");
}

void fill_rotary_table(const RotaryTableArguments& a, cudaStream_t stream) {
  constexpr int kThreads = 256;
  const auto blocks = static_cast<unsigned>((a.rows * a.half + kThreads - 1) / kThreads);
  if (blocks == 0) return;
  with_type(a.dtype, [&](auto type) {
    rotary_table_kernel<decltype(type)><<<blocks, kThreads, 0, stream>>>(a);
  });
  check_launch("compute rotary tables");
}

}  // namespace qkscope::cuda
