#include "engine/device/cuda/elements.cuh"
#include "engine/device/cuda/mixer/mixer_kernels.h"
#include "engine/device/recurrence_plan.h"

namespace qkscope::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kConvolvedRows = 16;            // consecutive rows that one warp convolves
constexpr std::int64_t kWidestOfWarp = 1024;  // longest norm that one warp computes
constexpr int kWidest = static_cast<int>(kCudaWidestKeys);

__device__ float sigmoid(float x) {
  return 1.0f / (1.0f + expf(-x));
}

__device__ float softplus(float x) {
  return log1pf(expf(-fabsf(x))) + fmaxf(x, 0.0f);
}

// Channels that one warp convolves: one head in mixers with the delta rule, else up to kWidest.
struct ChannelRange {
  std::int64_t first;
  int width;
  bool has_unit_length;  // the result is scaled to unit length
};

std::int64_t channel_range_count(const MixerConfig& c) {
  return c.has_delta_rule() ? 2 * c.key_heads + c.value_heads
                            : (c.channels() + kWidest - 1) / kWidest;
}

// Number of warps per row that compute rates and decays: one per head in Kimi Delta Attention.
std::int64_t rate_warp_count(const MixerConfig& c) {
  if (c.kind == Mixer::short_convolution) return 0;
  return c.kind == Mixer::kimi_delta ? c.value_heads : 1;
}

__device__ ChannelRange channel_range(const MixerArguments& a, int number) {
  const auto& c = a.config;
  if (!a.has_delta_rule) {
    const std::int64_t first = static_cast<std::int64_t>(number) * kWidest;
    return {first, static_cast<int>(min(a.channels - first, std::int64_t{kWidest})), false};
  }
  const auto value_head = number - 2 * c.key_heads;
  if (value_head < 0) return {number * c.d_key, static_cast<int>(c.d_key), true};
  return {2 * a.key_width + value_head * c.d_value, static_cast<int>(c.d_value), false};
}

// Returns inputs of the convolution, V channels at row `offset` of a sequence (negative: before the
// pass). The inputs are q, k and v or, in a short convolution, k times v.
template <typename T, int V>
__device__ Pack<float, V> convolution_input(const MixerArguments& a, const MixerSequence& s,
                                            std::int64_t offset, std::int64_t channel) {
  const auto kept = a.config.taps - 1;
  if (offset < 0 && s.past_row < 0) return {};
  if (offset < 0)
    return *reinterpret_cast<const Pack<float, V>*>(
        a.inputs + (s.past_row * kept + kept + offset) * a.channels + channel);
  const T* from = static_cast<const T*>(a.projected) + (s.begin + offset) * a.stride + channel;
  const auto values = *reinterpret_cast<const Pack<T, V>*>(from);
  Pack<float, V> x;
  for (int i = 0; i < V; ++i) x.values[i] = to_float(values.values[i]);
  if (a.config.kind != Mixer::short_convolution) return x;
  const auto factors = *reinterpret_cast<const Pack<T, V>*>(from + a.channels);
  for (int i = 0; i < V; ++i) x.values[i] *= to_float(factors.values[i]);
  return x;
}

// Stores V convolved channels of a row, times the output gate z (short convolution) or `scale`.
template <typename T, int V>
__device__ void store_convolved_channels(const MixerArguments& a, std::int64_t row,
                                         std::int64_t channel, const float (&y)[V], float scale) {
  const bool is_output = a.config.kind == Mixer::short_convolution;
  Pack<T, V> z = {};
  if (is_output)
    z = *reinterpret_cast<const Pack<T, V>*>(static_cast<const T*>(a.projected) + row * a.stride +
                                             2 * a.channels + channel);
  Pack<T, V> result;
  for (int i = 0; i < V; ++i)
    result.values[i] = from_float<T>(y[i] * (is_output ? to_float(z.values[i]) : scale));
  T* const to = static_cast<T*>(is_output ? a.output : a.qkv) + row * a.channels + channel;
  *reinterpret_cast<Pack<T, V>*>(to) = result;
}

// One warp convolves channels of one row, and saves the last inputs of a sequence for later passes.
template <typename T, int V>
__device__ void convolve_row(const MixerArguments& a, std::int64_t row, const ChannelRange& range,
                             int lane) {
  constexpr int kPacks = kWidest / 32 / V;
  const auto& c = a.config;
  const MixerSequence s = a.sequences[a.row_sequences[row]];
  const std::int64_t offset = row - s.begin;
  const bool keeps = s.next_row >= 0 && offset == s.length - 1;
  float y[kPacks][V] = {};
  float squares = 0.0f;
#pragma unroll
  for (int j = 0; j < kPacks; ++j) {
    const int at = (lane + 32 * j) * V;
    if (at >= range.width) continue;
    const auto channel = range.first + at;
    if (a.vectors.convolution_bias != nullptr)
      for (int i = 0; i < V; ++i) y[j][i] = a.vectors.convolution_bias[channel + i];
    for (int tap = 0; tap < c.taps; ++tap) {
      const auto x = convolution_input<T, V>(a, s, offset + tap - (c.taps - 1), channel);
      const auto weight = *reinterpret_cast<const Pack<float, V>*>(a.vectors.convolution +
                                                                   tap * a.channels + channel);
      for (int i = 0; i < V; ++i) y[j][i] = fmaf(x.values[i], weight.values[i], y[j][i]);
      if (keeps && tap > 0)
        *reinterpret_cast<Pack<float, V>*>(
            a.inputs + (s.next_row * (c.taps - 1) + tap - 1) * a.channels + channel) = x;
    }
    for (int i = 0; i < V; ++i) {
      if (c.kind != Mixer::short_convolution) y[j][i] *= sigmoid(y[j][i]);  // SiLU
      squares = fmaf(y[j][i], y[j][i], squares);
    }
  }
  const float scale = range.has_unit_length ? rsqrtf(warp_sum(squares) + 1e-6f) : 1.0f;
#pragma unroll
  for (int j = 0; j < kPacks; ++j)
    if (const int at = (lane + 32 * j) * V; at < range.width)
      store_convolved_channels<T, V>(a, row, range.first + at, y[j], scale);
}

// Computes rates and decays for all heads in a row. Only Mamba 2 limits the step size.
template <typename T>
__device__ void compute_rates_and_decays(const MixerArguments& a, std::int64_t row, int lane) {
  const auto& c = a.config;
  const bool is_delta = c.kind == Mixer::gated_delta;
  const T* const b = static_cast<const T*>(a.projected) + row * a.stride + a.channels +
                     a.value_width;  // b (value_heads), in a gated delta net only; then a
  const auto least = static_cast<float>(c.least_rate);
  const auto most = static_cast<float>(c.most_rate);
  for (std::int64_t head = lane; head < c.value_heads; head += 32) {
    const float x = to_float(b[(is_delta ? c.value_heads : 0) + head]) + a.vectors.dt_bias[head];
    float step = softplus(x);
    step = step < least ? least : step;  // NaN stays NaN
    step = step > most ? most : step;
    a.rates[row * c.value_heads + head] =
        is_delta ? static_cast<float>(c.rate_scale) * sigmoid(to_float(b[head])) : step;
    a.log_decays[row * c.value_heads + head] = -expf(a.vectors.a_log[head]) * step;
  }
}

// Computes the rate and the channel decays of one head of Kimi Delta Attention, for one row.
template <typename T>
__device__ void compute_channel_decays(const MixerArguments& a, std::int64_t row, int head,
                                       int lane) {
  const auto& c = a.config;
  const std::int64_t at = row * c.value_heads + head;
  const float b = to_float(static_cast<const T*>(a.projected)[row * a.stride + a.channels + head]);
  if (lane == 0) a.rates[at] = static_cast<float>(c.rate_scale) * sigmoid(b);
  const T* const x = static_cast<const T*>(a.low_rank_a) + at * c.d_key;
  const float* const bias = a.vectors.dt_bias + head * c.d_key;
  const float speed = expf(a.vectors.a_log[head]);
  for (std::int64_t i = lane; i < c.d_key; i += 32)
    a.channel_decays[at * c.d_key + i] = expf(-speed * softplus(to_float(x[i]) + bias[i]));
}

// Each warp convolves one range of channels, or computes rates and decays, for kConvolvedRows rows.
template <typename T, int V>
__global__ void convolve_kernel(MixerArguments a, int ranges, int rate_warps) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int blocks = (ranges + rate_warps + kWarps - 1) / kWarps;
  const int number = static_cast<int>(blockIdx.x) % blocks * kWarps + threadIdx.x / 32;
  if (number >= ranges + rate_warps) return;
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) / blocks * kConvolvedRows;
  for (auto row = begin; row < min(begin + kConvolvedRows, a.rows); ++row)
    if (number < ranges)
      convolve_row<T, V>(a, row, channel_range(a, number), lane);
    else if (a.channel_decays != nullptr)
      compute_channel_decays<T>(a, row, number - ranges, lane);
    else
      compute_rates_and_decays<T>(a, row, lane);
}

// Copies the last taps - 1 inputs up to each row in a.state_rows; one input per thread block.
template <typename T>
__global__ void convolution_states_kernel(MixerArguments a) {
  const auto kept = static_cast<unsigned>(a.config.taps - 1);
  const std::int32_t row = a.state_rows[blockIdx.x / kept];
  const MixerSequence s = a.sequences[a.row_sequences[row]];
  const std::int64_t offset = row - s.begin + 1 - static_cast<int>(kept - blockIdx.x % kept);
  float* const to = a.row_states + blockIdx.x * a.channels;
  for (std::int64_t channel = threadIdx.x; channel < a.channels; channel += blockDim.x)
    to[channel] = convolution_input<T, 1>(a, s, offset, channel).values[0];
}

// Returns the sum of x over a warp (kThreads = 32) or over a block of kThreads threads.
template <int kThreads>
__device__ float sum_over_threads(float x) {
  x = warp_sum(x);
  if constexpr (kThreads > 32) {
    __shared__ float sums[kThreads / 32];
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = x;
    __syncthreads();
    x = 0.0f;
    for (const float sum : sums) x += sum;
  }
  return x;
}

// Each group of kThreads threads normalises and gates the heads of one row that share a norm.
template <typename T, int kThreads>
__global__ void normalize_and_gate_kernel(MixerArguments a, std::int64_t groups) {
  const auto& c = a.config;
  const std::int64_t n = a.value_width / groups;
  const std::int64_t at =
      static_cast<std::int64_t>(blockIdx.x) * (blockDim.x / kThreads) + threadIdx.x / kThreads;
  if (at >= a.rows * groups) return;
  T* y = static_cast<T*>(a.output) + at * n;
  const bool is_kimi = c.kind == Mixer::kimi_delta;
  const T* z = is_kimi ? static_cast<const T*>(a.low_rank_z) + at * n
                       : static_cast<const T*>(a.projected) + at / groups * a.stride + a.channels +
                             at % groups * n;
  const float* weight = a.vectors.norm;  // null: no norm
  if (weight != nullptr && c.kind == Mixer::mamba2) weight += at % groups * n;
  const auto gate = [&](std::int64_t i) {
    return (is_kimi ? 1.0f : to_float(z[i])) * sigmoid(to_float(z[i]));
  };
  const auto input = [&](std::int64_t i) {
    return c.gate_before_norm ? to_float(y[i]) * gate(i) : to_float(y[i]);
  };
  float squares = 0.0f;
  for (std::int64_t i = threadIdx.x % kThreads; weight != nullptr && i < n; i += kThreads) {
    const float value = input(i);
    squares = fmaf(value, value, squares);
  }
  const float scale = rsqrtf(sum_over_threads<kThreads>(squares) / static_cast<float>(n) +
                             static_cast<float>(c.norm_eps));
  for (std::int64_t i = threadIdx.x % kThreads; i < n; i += kThreads) {
    float value = input(i);
    if (weight != nullptr) value = value * scale * weight[i];
    if (!c.gate_before_norm) value *= gate(i);
    y[i] = from_float<T>(value);
  }
}

}  // namespace

void convolve_inputs(const MixerArguments& a, cudaStream_t stream) {
  const auto& c = a.config;
  const auto ranges = channel_range_count(c);
  const auto rate_warps = rate_warp_count(c);
  const auto blocks = (a.rows + kConvolvedRows - 1) / kConvolvedRows *
                      ((ranges + rate_warps + kWarps - 1) / kWarps);
  const bool in_fours = c.d_key % 4 == 0 && c.d_value % 4 == 0 && a.stride % 4 == 0;
  const bool has_states = c.kind == Mixer::short_convolution && a.state_row_count > 0;
  dispatch_element_type(a.dtype, [&](auto type) {
    using T = decltype(type);
    launch_with_shared_memory(
        "convolve the inputs of a mixer", in_fours ? convolve_kernel<T, 4> : convolve_kernel<T, 1>,
        blocks, 32 * kWarps, 0, stream, a, static_cast<int>(ranges), static_cast<int>(rate_warps));
    if (has_states)
      launch_with_shared_memory("copy the states of a convolution", convolution_states_kernel<T>,
                                a.state_row_count * (c.taps - 1), 32 * kWarps, 0, stream, a);
  });
}

void normalize_and_gate_output(const MixerArguments& a, cudaStream_t stream) {
  constexpr int kThreads = 32 * kWarps;
  const auto groups = a.config.kind == Mixer::mamba2 ? a.config.key_heads : a.config.value_heads;
  const bool is_wide = a.value_width / groups > kWidestOfWarp;
  const auto blocks = is_wide ? a.rows * groups : (a.rows * groups + kWarps - 1) / kWarps;
  dispatch_element_type(a.dtype, [&](auto type) {
    using T = decltype(type);
    launch_with_shared_memory(
        "gate the output of a mixer",
        is_wide ? normalize_and_gate_kernel<T, kThreads> : normalize_and_gate_kernel<T, 32>, blocks,
        kThreads, 0, stream, a, groups);
  });
}

}  // namespace qkscope::cuda
