#include "engine/ops/mixer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/thread_pool.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/linear.h"
#include "engine/ops/row_kernels.h"

namespace qkscope {
namespace {

constexpr std::int64_t kConvolvedChannels = 512;  // per task
constexpr std::int64_t kMostTaps = 16;

// Convolution input at row `offset` of a sequence; negative offsets refer to earlier tokens.
const float* convolution_input(const MixerInput& input, const Sequence& sequence,
                               std::int64_t offset, ConstTensorView qkv, const float* zeros) {
  const auto channels = input.config.channels();
  if (offset >= 0) return qkv.data<float>() + (sequence.begin + offset) * channels;
  if (sequence.past == 0 || input.past == nullptr) return zeros;
  const auto kept = input.config.taps - 1;
  return input.past->inputs.data<float>() + (sequence.slot * kept + kept + offset) * channels;
}

// Convolves q, k and v (rows, channels) in place, from the last row to the first. Copies the last
// inputs of every sequence to `memory`.
void convolve(const MixerInput& input, MixerMemory* memory, TensorView qkv) {
  const auto channels = input.config.channels();
  const auto taps = input.config.taps;
  QKSCOPE_ASSERT(taps >= 2 && taps <= kMostTaps);
  const auto& bias = input.weights.convolution_bias;
  const std::vector<float> zeros(as_index(channels), 0.0f);
  const auto blocks = (channels + kConvolvedChannels - 1) / kConvolvedChannels;
  parallel_for(std::ssize(input.sequences) * blocks, [&](std::int64_t task) {
    const auto& sequence = input.sequences[as_index(task / blocks)];
    const auto begin = task % blocks * kConvolvedChannels;
    const auto count = std::min(kConvolvedChannels, channels - begin);
    const auto at = [&](std::int64_t offset) {
      return convolution_input(input, sequence, offset, qkv, zeros.data()) + begin;
    };
    for (std::int64_t i = 0; memory != nullptr && i < taps - 1; ++i)
      std::copy_n(
          at(sequence.length - taps + 1 + i), count,
          memory->inputs.data<float>() + (task / blocks * (taps - 1) + i) * channels + begin);
    std::array<const float*, kMostTaps> x;
    for (auto row = sequence.length - 1; row >= 0; --row) {
      for (std::int64_t t = 0; t < taps; ++t) x[as_index(t)] = at(row - taps + 1 + t);
      rows::convolve({.x = x.data(),
                      .weight = input.weights.convolution.data() + begin,
                      .stride = channels,
                      .taps = taps,
                      .bias = bias.empty() ? nullptr : bias.data() + begin,
                      .silu = input.config.kind != Mixer::short_convolution},
                     count, qkv.data<float>() + (sequence.begin + row) * channels + begin);
    }
  });
}

// Normalises every q and k to unit length and scales q by 1 / sqrt(d_key): x / sqrt(sum(x²) + 1e-6)
// equals an RMSNorm with weights 1 / sqrt(n) and eps 1e-6 / n.
void normalize_keys_and_queries(const MixerConfig& config, TensorView qkv) {
  const auto n = static_cast<double>(config.d_key);
  const std::vector<float> q_weight(as_index(config.d_key), static_cast<float>(1.0 / n));
  const std::vector<float> k_weight(as_index(config.d_key), static_cast<float>(1.0 / std::sqrt(n)));
  const auto eps = static_cast<float>(1e-6 / n);
  parallel_for_ranges(qkv.dim(0), 64, [&](std::int64_t begin, std::int64_t end) {
    for (auto row = begin; row < end; ++row) {
      float* const q = qkv.data<float>() + row * config.channels();
      float* const k = q + config.key_width();
      rows::rms_norm({q, q_weight.data(), config.key_heads, config.d_key, eps}, q);
      rows::rms_norm({k, k_weight.data(), config.key_heads, config.d_key, eps}, k);
    }
  });
}

// For each state row, copies the convolution inputs (rows, channels) that the next token will need
// to states (state_rows, taps - 1, channels).
void copy_convolution_states(const MixerInput& input, ConstTensorView x, TensorView states) {
  const auto kept = input.config.taps - 1;
  const auto channels = input.config.channels();
  const std::vector<float> zeros(as_index(channels), 0.0f);
  float* state = states.data<float>();
  for (const auto row : input.state_rows) {
    const auto sequence = std::ranges::find_if(
        input.sequences, [&](const Sequence& s) { return row < s.begin + s.length; });
    for (auto back = kept - 1; back >= 0; --back, state += channels)
      std::copy_n(
          convolution_input(input, *sequence, row - sequence->begin - back, x, zeros.data()),
          channels, state);
  }
}

// a (rows, decays) becomes the logarithm of the decay, -exp(A_log) softplus(a + dt_bias), in
// float64; the softplus is limited and also the rate in Mamba 2.
void compute_log_decays(const MixerInput& input, TensorView a, TensorView rates) {
  const auto& c = input.config;
  const auto& w = input.weights;
  const auto decays = a.dim(1);
  const auto of_head = decays / c.value_heads;
  std::vector<double> speeds;
  for (const float a_log : w.a_log) speeds.push_back(std::exp(static_cast<double>(a_log)));
  parallel_for_ranges(a.dim(0), 64, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = begin * decays; i < end * decays; ++i) {
      const auto decay = i % decays;
      const double x = static_cast<double>(a.data<float>()[i] + w.dt_bias[as_index(decay)]);
      double softplus = std::log1p(std::exp(-std::abs(x))) + std::max(x, 0.0);
      if (c.kind == Mixer::mamba2) {
        softplus = std::min(std::max(softplus, c.least_rate), c.most_rate);
        rates.data<float>()[i] = static_cast<float>(softplus);
      }
      a.data<float>()[i] = static_cast<float>(-speeds[as_index(decay / of_head)] * softplus);
    }
  });
}

// Skip connection: output (rows, value_heads, d_value) += D v.
void add_skip_connection(const MixerInput& input, ConstTensorView qkv, TensorView output) {
  const auto& c = input.config;
  parallel_for_ranges(output.dim(0), 64, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = begin * c.value_heads; i < end * c.value_heads; ++i) {
      const auto head = i % c.value_heads;
      const float* const v = qkv.data<float>() + i / c.value_heads * c.channels() +
                             2 * c.key_width() + head * c.d_value;
      rows::add_scaled(output.data<float>() + i * c.d_value, v, c.d_value,
                       input.weights.skip[as_index(head)]);
    }
  });
}

// Multiplies output (rows, value_heads, d_value) by silu(z) or sigmoid(z), before or after an
// RMSNorm of every value head, with the same weights, or of every group of Mamba 2, with weights of
// its own.
void gate_and_normalize(const MixerInput& input, ConstTensorView z, TensorView output) {
  const auto& c = input.config;
  const auto& weights = input.weights.norm;
  const auto flat = output.reshaped(z.shape());
  const auto gate = c.kind == Mixer::kimi_delta ? Activation::sigmoid : Activation::silu;
  if (c.gate_before_norm) gated_activation(gate, z, flat, flat);
  const auto groups = c.kind == Mixer::mamba2 ? c.key_heads : c.value_heads;
  const auto n = c.value_width() / groups;
  const auto eps = static_cast<float>(c.norm_eps);
  const auto at_once = std::ssize(weights) == n ? groups : 1;  // groups with the same weights
  parallel_for_ranges(weights.empty() ? 0 : output.dim(0), 16, [&](auto begin, auto end) {
    for (auto i = begin * groups; i < end * groups; i += at_once) {
      float* const x = flat.template data<float>() + i * n;
      rows::rms_norm({x, weights.data() + i % groups * n, at_once, n, eps}, x);
    }
  });
  if (!c.gate_before_norm) gated_activation(gate, z, flat, flat);
}

// A gated delta net, Kimi Delta Attention or Mamba 2.
void mix_by_recurrence(const MixerInput& input, const MixerStates& states, TensorView output) {
  const auto& c = input.config;
  const auto& w = input.weights;
  const auto rows = input.x.dim(0);
  Tensor qkv({rows, c.channels()});
  Tensor z({rows, c.value_width()});
  Tensor rates({rows, c.value_heads});
  Tensor log_decays({rows, c.decays()});
  const bool in_ranks = c.gate_rank() > 0;
  Tensor z_latent({in_ranks ? rows : 0, c.d_value});
  Tensor a_latent({in_ranks ? rows : 0, c.d_key});
  const auto columns = [&](std::int64_t begin, std::int64_t count) {
    return TensorView(qkv.view().bytes() + begin * std::int64_t{sizeof(float)}, DType::f32,
                      {rows, count}, {c.channels(), 1}, {});
  };
  linear(input.x, {{w.q, columns(0, c.key_width())},
                   {w.k, columns(c.key_width(), c.key_width())},
                   {w.v, columns(2 * c.key_width(), c.value_width())},
                   {in_ranks ? w.z_latent : w.z, in_ranks ? z_latent : z},
                   {in_ranks ? w.a_latent : w.a, in_ranks ? a_latent : log_decays}});
  if (in_ranks) linear(z_latent, w.z, z);
  if (in_ranks) linear(a_latent, w.a, log_decays);
  convolve(input, states.memory, qkv);
  if (c.has_delta_rule()) {
    linear(input.x, w.b, rates);
    normalize_keys_and_queries(c, qkv);
    apply_activation(Activation::sigmoid, {}, rates);
    if (c.rate_scale != 1.0) scale_by(rates, c.rate_scale);
  }
  compute_log_decays(input, log_decays, rates);
  linear_recurrence({c, qkv, rates, log_decays, input.sequences, input.state_rows, input.past},
                    states, output);
  if (!w.skip.empty()) add_skip_connection(input, qkv, output);
  gate_and_normalize(input, z, output);
}

void mix_by_convolution(const MixerInput& input, const MixerStates& states, TensorView output) {
  const auto& w = input.weights;
  const auto flat = output.reshaped({input.x.dim(0), input.config.channels()});
  Tensor before(flat.shape());
  Tensor after(flat.shape());
  linear(input.x, {{w.k, before}, {w.z, after}, {w.v, flat}});
  multiply_elements(flat, before);
  if (!states.rows.empty()) copy_convolution_states(input, flat, states.rows);
  convolve(input, states.memory, flat);
  multiply_elements(flat, after);
}

}  // namespace

MixerMemory make_mixer_memory(const MixerConfig& config, std::int64_t sequences) {
  return {Tensor({sequences, config.taps - 1, config.channels()}),
          Tensor({sequences, config.value_heads, recurrence_head_floats(config)})};
}

std::int64_t mixer_memory_floats(const MixerConfig& config) {
  return (config.taps - 1) * config.channels() +
         config.value_heads * recurrence_head_floats(config);
}

void apply_mixer(const MixerInput& input, const MixerStates& states, TensorView output) {
  if (input.config.kind == Mixer::short_convolution)
    mix_by_convolution(input, states, output);
  else
    mix_by_recurrence(input, states, output);
}

}  // namespace qkscope
