#include "engine/ops/mixer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/thread_pool.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/gemm.h"
#include "engine/ops/linear.h"
#include "engine/ops/row_kernels.h"

namespace qkscope {
namespace {

constexpr std::int64_t kConvolvedChannels = 512;  // per task
constexpr std::int64_t kMostTaps = 16;

// Convolution input at row `offset` of a sequence; negative offsets refer to earlier tokens.
const float* convolution_input_row(const MixerInput& input, const Sequence& sequence,
                                   std::int64_t offset, ConstTensorView qkv, const float* zeros) {
  const auto channels = input.config.channels();
  if (offset >= 0) return qkv.data<float>() + (sequence.begin + offset) * channels;
  if (sequence.past == 0 || input.past == nullptr) return zeros;
  const auto kept = input.config.taps - 1;
  return input.past->inputs.data<float>() + (sequence.slot * kept + kept + offset) * channels;
}

// Convolves q, k and v (rows, channels) in place, from the last row to the first. Copies the last
// taps - 1 inputs of every sequence to states.memory. States of a short convolution (state_rows,
// taps - 1, channels) are the inputs that the token after each state row needs.
void convolve(const MixerInput& input, const MixerStateOutputs& states, TensorView qkv) {
  const auto channels = input.config.channels();
  const auto taps = input.config.taps;
  QKSCOPE_ASSERT(taps >= 2 && taps <= kMostTaps);
  const auto& bias = input.weights.convolution_bias;
  const bool keeps_states = input.config.kind == Mixer::short_convolution && !states.rows.empty();
  const std::vector<float> zeros(as_index(channels), 0.0f);
  const auto blocks = (channels + kConvolvedChannels - 1) / kConvolvedChannels;
  parallel_for(std::ssize(input.sequences) * blocks, [&](std::int64_t task) {
    const auto& sequence = input.sequences[as_index(task / blocks)];
    const auto begin = task % blocks * kConvolvedChannels;
    const auto count = std::min(kConvolvedChannels, channels - begin);
    const auto at = [&](std::int64_t offset) {
      return convolution_input_row(input, sequence, offset, qkv, zeros.data()) + begin;
    };
    const auto copy_inputs = [&](std::int64_t end, float* to) {  // of the rows before `end`
      for (std::int64_t i = 0; i < taps - 1; ++i)
        std::copy_n(at(end - taps + 1 + i), count, to + i * channels + begin);
    };
    const auto kept = (taps - 1) * channels;
    if (states.memory != nullptr)
      copy_inputs(sequence.length, states.memory->inputs.data<float>() + task / blocks * kept);
    for (std::int64_t i = 0; keeps_states && i < states.rows.dim(0); ++i) {
      const auto row = input.state_rows[as_index(i)] - sequence.begin;
      if (row >= 0 && row < sequence.length)
        copy_inputs(row + 1, states.rows.data<float>() + i * kept);
    }
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

// Replaces `a` (rows, decays) by the log decay -exp(A_log) softplus(a + dt_bias), computed in
// float64. Mamba 2 clamps the softplus, which is also its update rate.
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
// RMSNorm of each value head (shared weights) or each group of Mamba 2 (own weights).
void gate_and_normalize(const MixerInput& input, ConstTensorView z, TensorView output) {
  const auto& c = input.config;
  const auto& weights = input.weights.norm;
  const auto flat = output.reshaped(z.shape());
  const auto gate = c.kind == Mixer::kimi_delta ? Activation::sigmoid : Activation::silu;
  if (c.gate_before_norm) apply_gated_activation({gate}, z, flat, flat);
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
  if (!c.gate_before_norm) apply_gated_activation({gate}, z, flat, flat);
}

// Runs a mixer with a linear recurrence: a gated delta net, Kimi Delta Attention or Mamba 2.
void apply_recurrent_mixer(const MixerInput& input, const MixerStateOutputs& states,
                           TensorView output) {
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
  apply_linear(input.x, {{w.q, columns(0, c.key_width())},
                         {w.k, columns(c.key_width(), c.key_width())},
                         {w.v, columns(2 * c.key_width(), c.value_width())},
                         {in_ranks ? w.z_latent : w.z, in_ranks ? z_latent : z},
                         {in_ranks ? w.a_latent : w.a, in_ranks ? a_latent : log_decays}});
  if (in_ranks) apply_linear(z_latent, w.z, z);
  if (in_ranks) apply_linear(a_latent, w.a, log_decays);
  convolve(input, states, qkv);
  if (c.has_delta_rule()) {
    apply_linear(input.x, w.b, rates);
    normalize_keys_and_queries(c, qkv);
    apply_activation(Activation::sigmoid, {}, rates);
    if (c.rate_scale != 1.0) scale_tensor(rates, c.rate_scale);
  }
  compute_log_decays(input, log_decays, rates);
  run_linear_recurrence({c, qkv, rates, log_decays, input.sequences, input.state_rows, input.past},
                        states, output);
  if (!w.skip.empty()) add_skip_connection(input, qkv, output);
  gate_and_normalize(input, z, output);
}

void apply_convolution_mixer(const MixerInput& input, const MixerStateOutputs& states,
                             TensorView output) {
  const auto& w = input.weights;
  const auto flat = output.reshaped({input.x.dim(0), input.config.channels()});
  Tensor before(flat.shape());
  Tensor after(flat.shape());
  apply_linear(input.x, {{w.k, before}, {w.z, after}, {w.v, flat}});
  multiply_elements(flat, before);
  convolve(input, states, flat);
  multiply_elements(flat, after);
}

constexpr std::int64_t kChunk = 64;  // tokens; chunks begin at multiples of it

// Matrix product c (rows, columns) = left * right, or += if `add`. `left` holds the rows of the
// left matrix, `right` the columns of the right one. Rows of c are `stride` apart.
void multiply_matrices(const gemm::StridedVectors& left, const gemm::StridedVectors& right,
                       bool add, float* c, std::int64_t stride) {
  thread_local ScratchFloats left_memory, right_memory;
  const auto tile = gemm::tile_shape();
  float* const rows = left_memory.reserve(gemm::round_up(left.count, tile.rows) * left.depth);
  float* const columns =
      right_memory.reserve(gemm::round_up(right.count, tile.columns) * right.depth);
  gemm::pack_left_operand(left, rows);
  gemm::pack_right_operand(right, columns);
  gemm::multiply({rows, columns, left.count, right.count, left.depth}, add, c, stride);
}

// Recurrence of one value head over one sequence. Row indices within a chunk count from the start
// of the chunk, which may lie in an earlier pass.
class HeadRecurrence {
 public:
  HeadRecurrence(const LinearRecurrenceInput& input, std::int64_t head, TensorView output)
      : input_(input), head_(head), output_(output.data<float>() + head * d_v_) {
    thread_local ScratchFloats memory;
    state_ = memory.reserve(head_state_floats(input.config) + kChunk * (d_k_ + 2 * kChunk));
    keys_ = state_ + d_k_ * d_v_;
    written_ = keys_ + kChunk * d_k_;
    log_decays_ = written_ + kChunk * d_v_;
    decayed_ = log_decays_ + kChunk;
    k_k_ = decayed_ + kChunk * d_k_;
    q_k_ = k_k_ + kChunk * kChunk;
  }

  void run_sequence(std::int64_t number, const MixerStateOutputs& states) {
    const auto& sequence = input_.sequences[as_index(number)];
    const auto floats = head_state_floats(input_.config);
    const bool goes_on = sequence.past > 0 && input_.past != nullptr;
    if (goes_on)
      std::copy_n(input_.past->heads.data<float>() + (sequence.slot * heads_ + head_) * floats,
                  floats, state_);
    else
      std::fill_n(state_, floats, 0.0f);
    const auto& wanted_rows = input_.state_rows;
    auto wanted = std::ranges::lower_bound(wanted_rows, sequence.begin) - wanted_rows.begin();
    auto old = goes_on ? sequence.past % kChunk : 0;  // rows of the chunk that were run before
    const auto end = sequence.begin + sequence.length;
    for (auto first = sequence.begin; first < end;) {
      const auto total = std::min(kChunk, old + end - first);
      run_chunk(first - old, old, total);
      first += total - old;
      for (; wanted < std::ssize(wanted_rows) && wanted_rows[as_index(wanted)] < first; ++wanted)
        write_state(total - (first - 1 - wanted_rows[as_index(wanted)]),
                    states.rows.data<float>() + (wanted * heads_ + head_) * d_k_ * d_v_);
      if (total == kChunk) write_state(kChunk, state_);
      old = total % kChunk;
    }
    if (states.memory != nullptr)
      std::copy_n(state_, floats,
                  states.memory->heads.data<float>() + (number * heads_ + head_) * floats);
  }

 private:
  // Computes rows [old, total) of a chunk; row i is row origin + i of the batch. With the state S
  // before the chunk, cumulated log decays c and rates b, the rows of written values w solve
  //   w_i = b_i (v_i - e^{c_i} Sᵀ k_i - sum over j < i of e^{c_i - c_j} (k_i·k_j) w_j),
  // or are w_i = b_i v_i in Mamba 2, and
  //   output_i = e^{c_i} Sᵀ q_i + sum over j <= i of e^{c_i - c_j} (q_i·k_j) w_j.
  void run_chunk(std::int64_t origin, std::int64_t old, std::int64_t total) {
    for (auto i = old; i < total; ++i) {
      std::copy_n(k_ + (origin + i) * stride_, d_k_, keys_ + i * d_k_);
      log_decays_[i] = input_.log_decays.data<float>()[(origin + i) * heads_ + head_];
    }
    double sum = 0.0;  // in float64, so that differences stay accurate
    for (std::int64_t i = 0; i < total; ++i)
      decays_[as_index(i)] = sum += static_cast<double>(log_decays_[i]);
    const auto count = total - old;
    const gemm::StridedVectors k{keys_ + old * d_k_, d_k_, count, d_k_};
    const gemm::StridedVectors q{q_ + (origin + old) * stride_, stride_, count, d_k_};
    const gemm::StridedVectors all_k{keys_, d_k_, total, d_k_};
    const gemm::StridedVectors state{state_, d_v_, d_v_, d_k_, true};
    float* const output = output_ + (origin + old) * heads_ * d_v_;
    if (corrects_) {
      multiply_matrices(k, state, false, written_ + old * d_v_, d_v_);
      multiply_matrices(k, all_k, false, k_k_ + old * kChunk, kChunk);
    }
    multiply_matrices(q, state, false, output, heads_ * d_v_);
    multiply_matrices(q, all_k, false, q_k_ + old * kChunk, kChunk);
    for (auto i = old; i < total; ++i) solve_triangular_row(origin + i, i, total);
    multiply_matrices({q_k_ + old * kChunk, kChunk, count, total},
                      {written_, d_v_, d_v_, total, true}, true, output, heads_ * d_v_);
  }

  void solve_triangular_row(std::int64_t row, std::int64_t i, std::int64_t total) {
    std::array<float, kChunk> exponents;
    for (std::int64_t j = 0; j <= i; ++j)
      exponents[as_index(j)] = static_cast<float>(decays_[as_index(i)] - decays_[as_index(j)]);
    float* const q_k = q_k_ + i * kChunk;
    rows::multiply_by_exp(q_k, exponents.data(), i + 1);
    std::fill(q_k + i + 1, q_k + total, 0.0f);
    const float rate = input_.rates.data<float>()[row * heads_ + head_];
    const auto decay = static_cast<float>(std::exp(decays_[as_index(i)]));
    rows::scale(output_ + row * heads_ * d_v_, d_v_, decay);
    float* const w = written_ + i * d_v_;
    const float* const v = v_ + row * stride_;
    if (!corrects_) {
      for (std::int64_t c = 0; c < d_v_; ++c) w[c] = rate * v[c];
      return;
    }
    float* const k_k = k_k_ + i * kChunk;
    rows::multiply_by_exp(k_k, exponents.data(), i);
    for (std::int64_t c = 0; c < d_v_; ++c) w[c] = rate * (v[c] - decay * w[c]);
    for (std::int64_t j = 0; j < i; ++j)
      rows::add_scaled(w, written_ + j * d_v_, d_v_, -rate * k_k[j]);
  }

  // Writes the state after the first `count` rows of the chunk, e^{c_last} S + sum over i of
  // e^{c_last - c_i} k_i w_iᵀ. `state` may alias state_.
  void write_state(std::int64_t count, float* state) {
    const double last = decays_[as_index(count - 1)];
    std::copy_n(keys_, count * d_k_, decayed_);
    for (std::int64_t i = 0; i < count; ++i)
      rows::scale(decayed_ + i * d_k_, d_k_,
                  static_cast<float>(std::exp(last - decays_[as_index(i)])));
    if (state != state_) std::copy_n(state_, d_k_ * d_v_, state);
    rows::scale(state, d_k_ * d_v_, static_cast<float>(std::exp(last)));
    multiply_matrices({decayed_, d_k_, d_k_, count, true}, {written_, d_v_, d_v_, count, true},
                      true, state, d_v_);
  }

  const LinearRecurrenceInput& input_;
  const MixerConfig& config_ = input_.config;
  // Delta rule: the value that the state predicts for k is subtracted from v.
  bool corrects_ = config_.kind == Mixer::gated_delta;
  std::int64_t heads_ = config_.value_heads;
  std::int64_t d_k_ = config_.d_key;
  std::int64_t d_v_ = config_.d_value;
  std::int64_t stride_ = config_.channels();  // of rows of q, k and v
  std::int64_t head_;
  const float* q_ = input_.qkv.data<float>() + head_ / (heads_ / config_.key_heads) * d_k_;
  const float* k_ = q_ + config_.key_width();
  const float* v_ = input_.qkv.data<float>() + 2 * config_.key_width() + head_ * d_v_;
  float* output_;
  float* state_;  // state_ to log_decays_: a head in MixerState::heads
  float* keys_;
  float* written_;
  float* log_decays_;
  float* decayed_;
  float* k_k_;
  float* q_k_;
  std::array<double, kChunk> decays_ = {};  // cumulated logarithms
};

std::int64_t count_state_blocks(const MixerConfig& c) {
  return (c.d_value + rows::kStateColumns - 1) / rows::kStateColumns;
}

// Kimi Delta Attention, token by token: a task is (sequence, value head, block of columns).
void run_delta_rule_on_columns(const LinearRecurrenceInput& input, std::int64_t task,
                               const MixerStateOutputs& states, TensorView output) {
  const auto& c = input.config;
  const auto blocks = count_state_blocks(c);
  const auto first = task % blocks * rows::kStateColumns;
  const auto head = task / blocks % c.value_heads;
  const auto tasks = c.value_heads * blocks;  // of a sequence
  const auto& sequence = input.sequences[as_index(task / tasks)];
  const auto count = std::min(rows::kStateColumns, c.d_value - first);
  const auto floats = c.d_key * rows::kStateColumns;
  thread_local ScratchFloats scratch;
  float* const state = scratch.reserve(floats + c.d_key);
  float* const decays = state + floats;
  std::fill_n(state, floats, 0.0f);
  if (sequence.past > 0 && input.past != nullptr)
    std::copy_n(input.past->heads.data<float>() + (sequence.slot * tasks + task % tasks) * floats,
                floats, state);
  auto wanted = std::ranges::lower_bound(input.state_rows, sequence.begin);
  for (auto row = sequence.begin; row < sequence.begin + sequence.length; ++row) {
    const auto token = row * c.value_heads + head;
    const float* const all = input.qkv.data<float>() + row * c.channels();
    const float* const q = all + head * c.d_key;
    std::fill_n(decays, c.d_key, 1.0f);
    rows::multiply_by_exp(decays, input.log_decays.data<float>() + token * c.d_key, c.d_key);
    std::array<float, rows::kStateColumns> values = {};  // of v, then of the output
    std::copy_n(all + 2 * c.key_width() + head * c.d_value + first, count, values.data());
    const float rate = input.rates.data<float>()[token];
    rows::apply_delta_rule({q, q + c.key_width(), decays, values.data(), rate, c.d_key}, state,
                           values.data());
    std::copy_n(values.data(), count, output.data<float>() + token * c.d_value + first);
    if (wanted == input.state_rows.end() || *wanted != row) continue;
    const auto place = (wanted++ - input.state_rows.begin()) * c.value_heads + head;
    for (std::int64_t i = 0; i < c.d_key; ++i)
      std::copy_n(state + i * rows::kStateColumns, count,
                  states.rows.data<float>() + (place * c.d_key + i) * c.d_value + first);
  }
  if (states.memory != nullptr)
    std::copy_n(state, floats, states.memory->heads.data<float>() + task * floats);
}

}  // namespace

MixerState make_mixer_state(const MixerConfig& config, std::int64_t sequences) {
  return {Tensor({sequences, config.taps - 1, config.channels()}),
          Tensor({sequences, config.value_heads, head_state_floats(config)})};
}

std::int64_t mixer_state_floats(const MixerConfig& config) {
  return (config.taps - 1) * config.channels() + config.value_heads * head_state_floats(config);
}

void apply_mixer(const MixerInput& input, const MixerStateOutputs& states, TensorView output) {
  if (input.config.kind == Mixer::short_convolution)
    apply_convolution_mixer(input, states, output);
  else
    apply_recurrent_mixer(input, states, output);
}

std::int64_t head_state_floats(const MixerConfig& c) {
  if (c.kind == Mixer::short_convolution) return 0;
  if (c.kind == Mixer::kimi_delta) return count_state_blocks(c) * c.d_key * rows::kStateColumns;
  return c.d_key * c.d_value + kChunk * (c.d_key + c.d_value + 1);
}

void run_linear_recurrence(const LinearRecurrenceInput& input, const MixerStateOutputs& states,
                           TensorView output) {
  const auto heads = input.config.value_heads;
  QKSCOPE_ASSERT(input.qkv.is_contiguous() && input.qkv.dim(1) == input.config.channels());
  QKSCOPE_ASSERT(output.is_contiguous() && output.dim(0) == input.qkv.dim(0));
  if (input.config.kind == Mixer::kimi_delta)
    return parallel_for(
        std::ssize(input.sequences) * heads * count_state_blocks(input.config),
        [&](std::int64_t task) { run_delta_rule_on_columns(input, task, states, output); });
  parallel_for(std::ssize(input.sequences) * heads, [&](std::int64_t task) {
    HeadRecurrence(input, task % heads, output).run_sequence(task / heads, states);
  });
}

}  // namespace qkscope
