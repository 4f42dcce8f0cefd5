#include "engine/device/cuda/elements.cuh"
#include "engine/device/cuda/pass_kernels.h"

namespace qkscope::cuda {
namespace {

constexpr int kMostThreads = 1024;

__device__ float block_sum(float x) {
  __shared__ float sums[kMostThreads / 32];
  x = warp_sum(x);
  __syncthreads();  // the previous sum has been read
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = x;
  __syncthreads();
  float total = 0.0f;
  for (int warp = 0; warp < static_cast<int>(blockDim.x) / 32; ++warp) total += sums[warp];
  return total;
}

// RMSNorm or LayerNorm with one block per row; each thread holds up to kPacks packs of V values.
template <typename T, int V, int kPacks, NormKind kKind>
__global__ void norm_kernel(NormArguments a) {
  using Values = Pack<T, V>;
  const int packs = static_cast<int>(a.n) / V;
  const auto number = static_cast<std::int64_t>(blockIdx.x);
  const std::int64_t row = number * (a.row_stride / V);
  const auto* x = static_cast<const Values*>(a.x) + row;
  float held[kPacks][V];
  float sum = 0.0f;
#pragma unroll
  for (int j = 0; j < kPacks; ++j) {
    const int at = static_cast<int>(threadIdx.x + j * blockDim.x);
    if (at >= packs) continue;
    const Values values = x[at];
#pragma unroll
    for (int i = 0; i < V; ++i) {
      held[j][i] = to_float(values.values[i]);
      sum += held[j][i];
    }
  }
  const auto n = static_cast<float>(a.n);
  const float mean = kKind == NormKind::layer ? block_sum(sum) / n : 0.0f;
  float squares = 0.0f;
#pragma unroll
  for (int j = 0; j < kPacks; ++j) {
    if (static_cast<int>(threadIdx.x + j * blockDim.x) >= packs) continue;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      if constexpr (kKind == NormKind::layer) held[j][i] -= mean;
      squares += held[j][i] * held[j][i];
    }
  }
  float scale = 1.0f;
  if (a.norm.weight != nullptr) scale = rsqrtf(block_sum(squares) / n + a.eps);
#pragma unroll
  for (int j = 0; j < kPacks; ++j) {
    const int at = static_cast<int>(threadIdx.x + j * blockDim.x);
    if (at >= packs) continue;
    Values out;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float weight = a.norm.weight == nullptr ? 1.0f : a.norm.weight[at * V + i];
      float value = held[j][i] * scale * weight;
      if (a.norm.bias != nullptr) value += a.norm.bias[at * V + i];
      out.values[i] = from_float<T>(value);
    }
    if (a.y != nullptr) (static_cast<Values*>(a.y) + row)[at] = out;
    if (a.residual == nullptr) continue;
    auto* residual = static_cast<Values*>(a.residual) + number * packs;
    Values sum = residual[at];
#pragma unroll
    for (int i = 0; i < V; ++i)
      sum.values[i] = from_float<T>(to_float(sum.values[i]) + to_float(out.values[i]));
    residual[at] = sum;
  }
}

template <typename T, int V, NormKind kKind>
void launch_norm(const NormArguments& a, unsigned blocks, cudaStream_t stream) {
  const int packs = static_cast<int>(a.n) / V;
  dispatch_width<1, 2, 4, 16>((packs + 255) / 256, [&](auto per_thread) {
    const int threads = (packs + per_thread - 1) / per_thread;
    norm_kernel<T, V, per_thread, kKind><<<blocks, (threads + 31) / 32 * 32, 0, stream>>>(a);
  });
}

// Launches the norm kernel. Without a norm (null weight), it copies the rows unchanged.
template <typename T, int V>
void launch_norm(const NormArguments& a, unsigned blocks, cudaStream_t stream) {
  if (a.kind == NormKind::layer && a.norm.weight != nullptr)
    launch_norm<T, V, NormKind::layer>(a, blocks, stream);
  else
    launch_norm<T, V, NormKind::rms>(a, blocks, stream);
}

constexpr int kWarps = 8;

__device__ void rotate_pair(float& a, float& b, float c, float s) {
  // Explicit intrinsics, so that the compiler cannot choose which product is fused into an FMA.
  const float turned = __fmaf_rn(a, c, -__fmul_rn(b, s));
  b = __fmaf_rn(b, c, __fmul_rn(a, s));
  a = turned;
}

// Channels of P rotary (RoPE) pairs of one head, in two runs of P channels: A starts at `first`, B
// at `second`. With rotated halves, pair i is (A[i], B[i]). Otherwise B follows A and the pairs are
// interleaved: channels 2i and 2i + 1 of the 2P channels.
template <typename T, int P>
struct RotaryPairGroup {
  int pair = 0;  // index of the first pair
  bool halves = false;
  int first = 0, second = 0;

  // `half`: number of rotated pairs; channels [begin, begin + 2 * half) of a head are rotated.
  __device__ RotaryPairGroup(int number, int half, int begin, bool interleaved)
      : pair(number * P), halves(pair < half && !interleaved) {
    const int unrotated = 2 * (pair - half);
    first = halves              ? begin + pair
            : pair < half       ? begin + 2 * pair
            : unrotated < begin ? unrotated
                                : unrotated + 2 * half;
    second = halves ? first + half : first + P;
  }

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
    Pack<T, P> a, b;
#pragma unroll
    for (int i = 0; i < P; ++i) {
      a.values[i] = from_float<T>(x[i]);
      b.values[i] = from_float<T>(x[P + i]);
    }
    *reinterpret_cast<Pack<T, P>*>(head + first) = a;
    *reinterpret_cast<Pack<T, P>*>(head + second) = b;
  }

  // Reorders adjacent pairs (A, B, A, B) to the order of rotated halves (A, A, B, B).
  __device__ static void deinterleave_pairs(float* x) {
    float sorted[2 * P];
#pragma unroll
    for (int i = 0; i < 2 * P; ++i) sorted[i % 2 * P + i / 2] = x[i];
#pragma unroll
    for (int i = 0; i < 2 * P; ++i) x[i] = sorted[i];
  }

  __device__ void apply_norm(float* x, const float* weight, float scale) const {
#pragma unroll
    for (int i = 0; i < P; ++i) {
      x[i] = round_to_type<T>(__fmul_rn(__fmul_rn(x[i], scale), weight[first + i]));
      x[P + i] = round_to_type<T>(__fmul_rn(__fmul_rn(x[P + i], scale), weight[second + i]));
    }
  }

  __device__ void rotate(float* x, const T* cos, const T* sin) const {
#pragma unroll
    for (int i = 0; i < P; ++i) {
      const float c = to_float(cos[pair + i]);
      const float s = to_float(sin[pair + i]);
      if (halves)  // two branches keep x in registers
        rotate_pair(x[i], x[P + i], c, s);
      else
        rotate_pair(x[2 * i], x[2 * i + 1], c, s);
    }
  }
};

// Norm and RoPE of q and k: one block per row, one warp per head of up to 2 * kMostPairs channels.
template <typename T, int P, int kMostPairs>
__global__ void norm_and_rope_kernel(NormalizeAndRotateArguments a) {
  constexpr int kGroups = kMostPairs / 32 / P;  // groups per lane
  const std::int64_t row = blockIdx.x;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int half = static_cast<int>(a.rotary.dim) / 2, begin = static_cast<int>(a.rotary.begin);
  const int groups = static_cast<int>(a.d_head) / 2 / P;
  const int heads = static_cast<int>(a.n_heads + a.n_kv_heads);
  const T* cos = static_cast<const T*>(a.rotary.cos) + row * half;
  const T* sin = static_cast<const T*>(a.rotary.sin) + row * half;
  const float query_scale = a.query_scale == nullptr ? 1.0f : round_to_type<T>(a.query_scale[row]);
  for (int number = static_cast<int>(threadIdx.x) / 32; number < heads; number += kWarps) {
    const bool is_query = number < a.n_heads;
    T* head = is_query
                  ? static_cast<T*>(a.q) + row * a.row_stride + number * a.d_head
                  : static_cast<T*>(a.k) + row * a.row_stride + (number - a.n_heads) * a.d_head;
    float x[kGroups][2 * P];
    float squares = 0.0f;
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      if (lane + 32 * j >= groups) continue;
      const RotaryPairGroup<T, P> group(lane + 32 * j, half, begin, a.interleaved);
      group.load(head, x[j]);
      if (a.norm_last && a.rotate && group.pair < half) group.rotate(x[j], cos, sin);
#pragma unroll
      for (int i = 0; i < 2 * P; ++i) squares = __fmaf_rn(x[j][i], x[j][i], squares);
    }
    __syncwarp();  // sorted pairs are stored to channels that other lanes have read
    const float* weight = is_query ? a.q_norm : a.k_norm;
    float scale = 1.0f;
    if (weight != nullptr) scale = rsqrtf(warp_sum(squares) / static_cast<float>(a.d_head) + a.eps);
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      if (lane + 32 * j >= groups) continue;
      const RotaryPairGroup<T, P> group(lane + 32 * j, half, begin, a.interleaved);
      if (weight != nullptr) group.apply_norm(x[j], weight, scale);
      if (!a.norm_last && a.rotate && group.pair < half) group.rotate(x[j], cos, sin);
      if (is_query)
#pragma unroll
        for (int i = 0; i < 2 * P; ++i) x[j][i] *= query_scale;
      const bool sorts = a.sorts_pairs && a.rotate && group.pair < half;
      if (sorts) group.deinterleave_pairs(x[j]);
      RotaryPairGroup<T, P>(lane + 32 * j, half, begin, a.interleaved && !sorts).store(head, x[j]);
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
__global__ void apply_sinks_kernel(AttentionSinkArguments a) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (at >= a.rows * a.n_heads) return;
  const float factor = 1.0f / (1.0f + expf(a.sinks[at % a.n_heads] - a.lse[at] * kLn2));
  T* z = static_cast<T*>(a.z) + at * a.d_head;
  for (std::int64_t i = threadIdx.x % 32; i < a.d_head; i += 32)
    z[i] = from_float<T>(to_float(z[i]) * factor);
}

// One block per row.
template <typename T>
__global__ void join_latent_keys_kernel(LatentKeysArguments a) {
  const std::int64_t row = blockIdx.x;
  const auto width = a.own_width + a.shared_width;
  const T* own = static_cast<const T*>(a.own) + row * a.heads * a.own_width;
  const T* shared = static_cast<const T*>(a.shared) + row * a.shared_width;
  T* k = static_cast<T*>(a.k) + row * a.k_stride;
  for (std::int64_t i = threadIdx.x; i < a.heads * width; i += blockDim.x) {
    const auto head = i / width, channel = i % width;
    k[i] =
        channel < a.own_width ? own[head * a.own_width + channel] : shared[channel - a.own_width];
  }
}

}  // namespace

void normalize_rows(const NormArguments& arguments, cudaStream_t stream) {
  auto a = arguments;
  if (a.row_stride == 0) a.row_stride = a.n;
  launch_for_dtype(a.dtype, a.rows, "normalise activations", [&](auto type, unsigned blocks) {
    using T = decltype(type);
    if (a.n % kPack<T> == 0 && a.row_stride % kPack<T> == 0 && is_16_byte_aligned(a.x) &&
        is_16_byte_aligned(a.y))
      launch_norm<T, kPack<T>>(a, blocks, stream);
    else
      launch_norm<T, 1>(a, blocks, stream);
  });
}

void normalize_and_rotate(const NormalizeAndRotateArguments& a, cudaStream_t stream) {
  const bool in_twos = a.d_head % 4 == 0 && a.rotary.dim % 4 == 0 && a.rotary.begin % 4 == 0 &&
                       a.row_stride % 2 == 0;
  launch_for_dtype(
      a.dtype, a.rows, "normalise and rotate q and k", [&](auto type, unsigned blocks) {
        using T = decltype(type);
        dispatch_width<128, 256>(a.d_head / 2, [&](auto pairs) {
          const auto kernel =
              in_twos ? norm_and_rope_kernel<T, 2, pairs> : norm_and_rope_kernel<T, 1, pairs>;
          kernel<<<blocks, 32 * kWarps, 0, stream>>>(a);
        });
      });
}

void apply_sinks(const AttentionSinkArguments& a, cudaStream_t stream) {
  launch_for_dtype(a.dtype, (a.rows * a.n_heads + kWarps - 1) / kWarps,
                   "let sinks join the softmax", [&](auto type, unsigned blocks) {
                     apply_sinks_kernel<decltype(type)><<<blocks, 32 * kWarps, 0, stream>>>(a);
                   });
}

void concatenate_latent_keys(const LatentKeysArguments& a, cudaStream_t stream) {
  launch_for_dtype(a.dtype, a.rows, "join the parts of keys", [&](auto type, unsigned blocks) {
    join_latent_keys_kernel<decltype(type)><<<blocks, 256, 0, stream>>>(a);
  });
}

void fill_rotary_table(const RotaryTableArguments& a, cudaStream_t stream) {
  constexpr int kThreads = 256;
  launch_for_dtype(a.dtype, (a.rows * a.half + kThreads - 1) / kThreads, "compute rotary tables",
                   [&](auto type, unsigned blocks) {
                     rotary_table_kernel<decltype(type)><<<blocks, kThreads, 0, stream>>>(a);
                   });
}

}  // namespace qkscope::cuda
