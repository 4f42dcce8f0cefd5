#include "engine/device/cuda/elements.cuh"
#include "engine/device/cuda/mixer/mixer_kernels.h"
#include "engine/device/recurrence_plan.h"

namespace qkscope::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kConvolvedRows = 16;  // consecutive rows of a head that one warp convolves
constexpr int kWidest = static_cast<int>(kCudaWidestKeys);

__device__ float sigmoid(float x) {
  return 1.0f / (1.0f + expf(-x));
}

// One warp: a head of q, k or v of one row. The window of the last row of a sequence is kept.
template <typename T, int V>
__device__ void convolve_head(const MixerArguments& a, std::int64_t row, int head, int lane) {
  constexpr int kPacks = kWidest / 32 / V;
  const auto& c = a.config;
  const int keys = static_cast<int>(2 * c.key_heads);
  const bool is_value = head >= keys;
  const auto width = static_cast<int>(is_value ? c.d_value : c.d_key);
  const std::int64_t first =
      is_value ? 2 * a.key_width + (head - keys) * c.d_value : head * c.d_key;
  const std::int64_t channels = a.channels;
  const int taps = static_cast<int>(c.taps);
  const MixerSequence s = a.sequences[a.row_sequences[row]];
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
      const auto weight = *reinterpret_cast<const Pack<float, V>*>(a.vectors.convolution +
                                                                   tap * channels + first + at);
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
__device__ void compute_rates(const MixerArguments& a, std::int64_t row, int lane) {
  const auto& c = a.config;
  const T* b = static_cast<const T*>(a.projected) + row * a.stride + a.channels + a.value_width;
  for (std::int64_t head = lane; head < c.value_heads; head += 32) {
    const float x = to_float(b[c.value_heads + head]) + a.vectors.dt_bias[head];
    const float softplus = log1pf(expf(-fabsf(x))) + fmaxf(x, 0.0f);
    a.rates[row * c.value_heads + head] =
        static_cast<float>(c.rate_scale) * sigmoid(to_float(b[head]));
    a.log_decays[row * c.value_heads + head] = -expf(a.vectors.a_log[head]) * softplus;
  }
}

// Each warp: one head, or the rates of all heads, of kConvolvedRows rows.
template <typename T, int V>
__global__ void convolve_kernel(MixerArguments a) {
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
__global__ void gate_kernel(MixerArguments a) {
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
    y[i] = from_float<T>(to_float(y[i]) * scale * a.vectors.norm[i] * (gate * sigmoid(gate)));
  }
}

}  // namespace

void convolve_inputs(const MixerArguments& a, cudaStream_t stream) {
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

void normalize_and_gate_output(const MixerArguments& a, cudaStream_t stream) {
  const auto blocks = (a.rows * a.config.value_heads + kWarps - 1) / kWarps;
  dispatch_element_type(a.dtype, [&](auto type) {
    launch_with_shared_memory("gate the output of a mixer", gate_kernel<decltype(type)>, blocks,
                              32 * kWarps, 0, stream, a);
  });
}

}  // namespace qkscope::cuda
