// Chunked recurrences and whole mixers against plain loops in float64.
#include "engine/ops/mixer.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include <gtest/gtest.h>

#include "base/core/numbers.h"
#include "base/core/thread_pool.h"
#include "random_tensor.h"

namespace qkscope {
namespace {

constexpr MixerConfig kConfig{.kind = Mixer::gated_delta,
                              .key_heads = 2,
                              .value_heads = 4,
                              .d_key = 24,
                              .d_value = 20,
                              .taps = 4};
constexpr MixerConfig kMamba2{.kind = Mixer::mamba2,
                              .key_heads = 2,
                              .value_heads = 4,
                              .d_key = 24,
                              .d_value = 20,
                              .taps = 4,
                              .least_rate = 0.1,
                              .most_rate = 1.5,
                              .gate_before_norm = true,
                              .convolution_bias = true};
// More columns than one block of the kernel has.
constexpr MixerConfig kKimi{.kind = Mixer::kimi_delta,
                            .key_heads = 3,
                            .value_heads = 3,
                            .d_key = 70,
                            .d_value = 70,
                            .taps = 4};
constexpr MixerConfig kShort{.kind = Mixer::short_convolution,
                             .value_heads = 1,
                             .d_value = 16,
                             .taps = 3,
                             .convolution_bias = true};

struct RuleInput {
  Tensor qkv;
  Tensor rates;
  Tensor log_decays;
};

// Unit keys and scaled unit queries; rates in (0, scale); memories of heads, or of channels, from
// one token to the whole text.
RuleInput random_rule_input(const MixerConfig& config, std::int64_t rows, double scale) {
  RuleInput input{random_tensor({rows, config.channels()}, 1),
                  random_tensor({rows, config.value_heads}, 2),
                  random_tensor({rows, config.decays()}, 3)};
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t head = 0; head < 2 * config.key_heads; ++head) {
      float* const x = input.qkv.data<float>() + row * config.channels() + head * config.d_key;
      double squares = 0.0;
      for (std::int64_t i = 0; i < config.d_key; ++i) squares += static_cast<double>(x[i]) * x[i];
      const double d = head < config.key_heads ? static_cast<double>(config.d_key) : 1.0;
      for (std::int64_t i = 0; i < config.d_key; ++i)
        x[i] = static_cast<float>(x[i] / std::sqrt(squares * d));
    }
  for (std::int64_t i = 0; i < input.rates.size(); ++i) {
    float& rate = input.rates.data<float>()[i];
    rate = static_cast<float>(scale / (1.0 + std::exp(-rate)));
  }
  for (std::int64_t i = 0; i < input.log_decays.size(); ++i) {
    float& decay = input.log_decays.data<float>()[i];
    const auto kinds = std::min<std::int64_t>(4, config.decays());
    const double speed = std::pow(10.0, 1.0 - 2.0 * static_cast<double>(i % kinds));
    decay = static_cast<float>(-speed * std::log1p(std::exp(static_cast<double>(decay))));
  }
  return input;
}

struct RuleResult {
  std::vector<double> output;  // (rows, value_heads, d_value)
  std::vector<double> state;   // (value_heads, d_key, d_value) after the last row
};

// The recurrence, token by token, in float64.
RuleResult step_by_step(const MixerConfig& c, const RuleInput& input) {
  const auto rows = input.qkv.dim(0);
  RuleResult result{std::vector<double>(as_index(rows * c.value_width())),
                    std::vector<double>(as_index(c.value_width() * c.d_key), 0.0)};
  std::vector<double> delta(as_index(c.d_value));
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t head = 0; head < c.value_heads; ++head) {
      const float* all = input.qkv.data<float>() + row * c.channels();
      const float* q = all + head / (c.value_heads / c.key_heads) * c.d_key;
      const float* k = q + c.key_width();
      const float* v = all + 2 * c.key_width() + head * c.d_value;
      const auto gate = row * c.value_heads + head;
      const bool by_channel = c.kind == Mixer::kimi_delta;
      const float* const logs = input.log_decays.data<float>() + gate * (by_channel ? c.d_key : 1);
      const double rate = input.rates.data<float>()[gate];
      double* s = result.state.data() + head * c.d_key * c.d_value;
      for (std::int64_t i = 0; i < c.d_key * c.d_value; ++i)
        s[i] *= std::exp(static_cast<double>(logs[by_channel ? i / c.d_value : 0]));
      for (std::int64_t j = 0; j < c.d_value; ++j) {
        double predicted = 0.0;
        for (std::int64_t i = 0; i < c.d_key && c.has_delta_rule(); ++i)
          predicted += s[i * c.d_value + j] * k[i];
        delta[as_index(j)] = rate * (v[j] - predicted);
      }
      double* out = result.output.data() + gate * c.d_value;
      for (std::int64_t i = 0; i < c.d_key; ++i)
        for (std::int64_t j = 0; j < c.d_value; ++j) {
          s[i * c.d_value + j] += k[i] * delta[as_index(j)];
          out[j] += s[i * c.d_value + j] * q[i];
        }
    }
  return result;
}

double relative_error(const Tensor& found, const std::vector<double>& expected) {
  double squares = 0.0;
  double reference = 0.0;
  for (std::int64_t i = 0; i < found.size(); ++i) {
    const double exact = expected[as_index(i)];
    squares += std::pow(static_cast<double>(found.data<float>()[i]) - exact, 2);
    reference += exact * exact;
  }
  return std::sqrt(squares / reference);
}

Tensor state_tensor(const MixerConfig& c, std::int64_t count) {
  return Tensor({count, c.value_heads, c.d_key, c.d_value});
}

// Float32 products of chunks against float64: a result is a sum of about 64 + d_key products with a
// rounding of 2^-24 each, whose errors add like a random walk, and the state carries errors from
// chunk to chunk, damped by the decay and by the overwriting of old values. Rates up to 2 reflect
// old values instead, so that errors of heads with long memories persist.
TEST(GatedDelta, ChunksAgreeWithTheRecurrenceInFloat64At4096Tokens) {
  for (const double scale : {1.0, 2.0}) {
    constexpr std::int64_t kTokens = 4096;
    const auto input = random_rule_input(kConfig, kTokens, scale);
    const auto expected = step_by_step(kConfig, input);
    const std::vector<Sequence> sequences = {{.begin = 0, .length = kTokens}};
    const std::vector<std::int64_t> last = {kTokens - 1};
    Tensor output({kTokens, kConfig.value_heads, kConfig.d_value});
    auto state = state_tensor(kConfig, 1);
    run_linear_recurrence({kConfig, input.qkv, input.rates, input.log_decays, sequences, last},
                          {.rows = state}, output);
    const auto error = relative_error(output, expected.output);
    const auto state_error = relative_error(state, expected.state);
    EXPECT_LT(error, 2e-6) << scale;
    EXPECT_LT(state_error, 2e-6) << scale;
    std::printf("rates up to %g: relative error %.1e, of the last state %.1e\n", scale, error,
                state_error);
  }
}

// As above, without the overwriting of old values.
TEST(Mamba2, ChunksAgreeWithTheRecurrenceInFloat64At4096Tokens) {
  constexpr std::int64_t kTokens = 4096;
  const auto input = random_rule_input(kMamba2, kTokens, 1.0);
  const auto expected = step_by_step(kMamba2, input);
  const std::vector<Sequence> sequences = {{.begin = 0, .length = kTokens}};
  const std::vector<std::int64_t> last = {kTokens - 1};
  Tensor output({kTokens, kMamba2.value_heads, kMamba2.d_value});
  auto state = state_tensor(kMamba2, 1);
  run_linear_recurrence({kMamba2, input.qkv, input.rates, input.log_decays, sequences, last},
                        {.rows = state}, output);
  const auto error = relative_error(output, expected.output);
  const auto state_error = relative_error(state, expected.state);
  EXPECT_LT(error, 2e-6);
  EXPECT_LT(state_error, 2e-6);
  std::printf("relative error %.1e, of the last state %.1e\n", error, state_error);
}

// Token by token in float32, with a decay for each channel: a product that follows a decay of 0
// leaves nothing, and no factor exceeds 1.
TEST(KimiDelta, TokensAgreeWithTheRecurrenceInFloat64At4096Tokens) {
  constexpr std::int64_t kTokens = 4096;
  auto input = random_rule_input(kKimi, kTokens, 1.0);
  for (std::int64_t i = 0; i < input.log_decays.size(); i += 997)
    input.log_decays.data<float>()[i] = -1e4f;  // forgets a channel
  const auto expected = step_by_step(kKimi, input);
  const std::vector<Sequence> sequences = {{.begin = 0, .length = kTokens}};
  const std::vector<std::int64_t> last = {kTokens - 1};
  Tensor output({kTokens, kKimi.value_heads, kKimi.d_value});
  auto state = state_tensor(kKimi, 1);
  run_linear_recurrence({kKimi, input.qkv, input.rates, input.log_decays, sequences, last},
                        {.rows = state}, output);
  const auto error = relative_error(output, expected.output);
  const auto state_error = relative_error(state, expected.state);
  EXPECT_LT(error, 2e-6);
  EXPECT_LT(state_error, 2e-6);
  std::printf("relative error %.1e, of the last state %.1e\n", error, state_error);
}

TEST(GatedDelta, StatesAfterChosenRowsAreThoseOfShorterTexts) {
  const auto input = random_rule_input(kConfig, 200, 1.0);
  const std::vector<Sequence> sequences = {{.begin = 0, .length = 200}};
  const std::vector<std::int64_t> rows = {0, 5, 63, 64, 100, 199};
  Tensor output({200, kConfig.value_heads, kConfig.d_value});
  auto states = state_tensor(kConfig, std::ssize(rows));
  run_linear_recurrence({kConfig, input.qkv, input.rates, input.log_decays, sequences, rows},
                        {.rows = states}, output);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::vector<Sequence> shorter = {{.begin = 0, .length = rows[i] + 1}};
    auto state = state_tensor(kConfig, 1);
    Tensor part({200, kConfig.value_heads, kConfig.d_value});
    const std::vector<std::int64_t> last = {rows[i]};
    run_linear_recurrence({kConfig, input.qkv, input.rates, input.log_decays, shorter, last},
                          {.rows = state}, part);
    const auto number = static_cast<std::int64_t>(i);
    EXPECT_EQ(std::memcmp(states.view().rows(number, number + 1).bytes(), state.view().bytes(),
                          state.view().size_bytes()),
              0)
        << rows[i];
  }
}

// Weights whose matrices are views of `values`.
struct RandomWeights {
  explicit RandomWeights(std::int64_t d_model, const MixerConfig& c = kConfig) : config(c) {
    const auto linear = [&](std::int64_t rows, std::int64_t width = 0) {
      values.push_back(random_tensor({rows, width > 0 ? width : d_model},
                                     static_cast<unsigned>(values.size()), 0.3f));
      return Linear{{values.back().view()}, {}};
    };
    const bool is_short = c.kind == Mixer::short_convolution;
    weights.q = linear(std::max<std::int64_t>(1, c.key_width()));
    weights.k = linear(is_short ? c.value_width() : c.key_width());
    weights.v = linear(c.value_width());
    const bool is_kimi = c.kind == Mixer::kimi_delta;
    weights.z = linear(c.value_width(), is_kimi ? c.d_value : 0);
    weights.b = linear(c.value_heads);
    weights.a = linear(c.decays(), is_kimi ? c.d_key : 0);
    if (is_kimi) weights.z_latent = linear(c.d_value);
    if (is_kimi) weights.a_latent = linear(c.d_key);
    const auto floats = [](std::int64_t count, unsigned seed, float spread) {
      const auto tensor = random_tensor({count}, seed, spread);
      return std::vector<float>(tensor.data<float>(), tensor.data<float>() + count);
    };
    weights.convolution = floats(c.taps * c.channels(), 11, 0.5f);
    weights.a_log = floats(c.value_heads, 12, 2.0f);
    weights.dt_bias = floats(c.decays(), 13, 1.0f);
    weights.norm = floats(c.kind == Mixer::mamba2 ? c.value_width() : c.d_value, 14, 1.0f);
    if (c.convolution_bias) weights.convolution_bias = floats(c.channels(), 15, 0.5f);
    if (c.kind == Mixer::mamba2) weights.skip = floats(c.value_heads, 16, 1.0f);
  }

  MixerConfig config;

  std::vector<Tensor> values;
  MixerWeights weights;
};

constexpr std::int64_t kModelWidth = 16;

Tensor run_net(const RandomWeights& net, const Tensor& x, const std::vector<Sequence>& sequences,
               const MixerState* past = nullptr, MixerState* memory = nullptr) {
  Tensor output({x.dim(0), net.config.value_heads, net.config.d_value});
  apply_mixer({net.config, net.weights, x, sequences, {}, past}, {.rows = {}, .memory = memory},
              output);
  return output;
}

Tensor rows_of(const Tensor& x, std::int64_t begin, std::int64_t count) {
  Tensor part({count, x.dim(1)});
  std::copy_n(x.data<float>() + begin * x.dim(1), count * x.dim(1), part.data<float>());
  return part;
}

bool same_rows(const Tensor& whole, std::int64_t begin, const Tensor& part) {
  return std::memcmp(whole.view().rows(begin, begin + part.dim(0)).bytes(), part.view().bytes(),
                     part.view().size_bytes()) == 0;
}

// Neither the convolution nor the state crosses the border of two sequences.
class EveryMixer : public testing::TestWithParam<MixerConfig> {};

TEST_P(EveryMixer, PackedSequencesHaveTheBitsOfSeparateOnes) {
  const RandomWeights net(kModelWidth, GetParam());
  const auto x = random_tensor({140, kModelWidth}, 5);
  const std::vector<Sequence> sequences = {
      {.begin = 0, .length = 70}, {.begin = 70, .length = 2}, {.begin = 72, .length = 68}};
  for (const int threads : {1, 3}) {
    set_thread_count(threads);
    const auto packed = run_net(net, x, sequences);
    for (const auto& sequence : sequences)
      EXPECT_TRUE(same_rows(packed, sequence.begin,
                            run_net(net, rows_of(x, sequence.begin, sequence.length),
                                    {{.begin = 0, .length = sequence.length}})));
  }
  set_thread_count(0);
}

// Pieces shorter than the convolution, pieces that end a chunk, and another slot of the memory.
TEST_P(EveryMixer, ATextInPiecesHasTheBitsOfTheWholeText) {
  const RandomWeights net(kModelWidth, GetParam());
  const auto x = random_tensor({200, kModelWidth}, 6);
  const auto whole = run_net(net, x, {{.begin = 0, .length = 200}});
  auto memory = make_mixer_state(net.config, 1);
  std::int64_t past = 0;
  for (const std::int64_t length : {1, 2, 40, 21, 1, 70, 64, 1}) {
    auto next = make_mixer_state(net.config, 1);
    const auto part = run_net(net, rows_of(x, past, length),
                              {{.begin = 0, .length = length, .past = past}}, &memory, &next);
    EXPECT_TRUE(same_rows(whole, past, part)) << past;
    memory = std::move(next);
    past += length;
  }
  EXPECT_EQ(past, 200);
}

// The state after a chosen row is the last state of the text that ends there.
TEST_P(EveryMixer, StatesAfterChosenRowsAreThoseOfShorterTexts) {
  const RandomWeights net(kModelWidth, GetParam());
  const auto x = random_tensor({90, kModelWidth}, 6);
  const auto states = [&](const std::vector<Sequence>& sequences,
                          const std::vector<std::int64_t>& rows) {
    Tensor state(net.config.state_shape(std::ssize(rows)));
    Tensor output({90, net.config.value_heads, net.config.d_value});
    apply_mixer({net.config, net.weights, x, sequences, rows}, {.rows = state}, output);
    return state;
  };
  const auto chosen = states({{.begin = 0, .length = 20}, {.begin = 20, .length = 70}},
                             {0, 1, 19, 20, 21, 83, 84, 89});
  EXPECT_TRUE(same_rows(chosen, 2, states({{.begin = 0, .length = 20}}, {19})));
  EXPECT_TRUE(same_rows(chosen, 0, states({{.begin = 0, .length = 1}}, {0})));
  for (const auto& [number, row] : {std::pair(3, 20), std::pair(4, 21), std::pair(6, 84)})
    EXPECT_TRUE(same_rows(chosen, number, states({{.begin = 20, .length = row - 19}}, {row})));
}

INSTANTIATE_TEST_SUITE_P(Kinds, EveryMixer, testing::Values(kConfig, kMamba2, kShort, kKimi),
                         [](const auto& config) {
                           switch (config.param.kind) {
                             case Mixer::gated_delta:
                               return "gated_delta";
                             case Mixer::mamba2:
                               return "mamba2";
                             case Mixer::short_convolution:
                               return "short_convolution";
                             default:
                               return "kimi_delta";
                           }
                         });

double at(const WeightMatrix& matrix, std::int64_t row, std::int64_t column) {
  return matrix.values.data<float>()[row * matrix.values.dim(1) + column];
}

// Projections, convolution, gates and norms in plain float64 loops around the recurrence, which the
// test above covers: with one token, the output is (q·k) b v, normalised and gated.
TEST(GatedDelta, TheFirstTokenAgreesWithPlainLoops) {
  const auto& c = kConfig;
  const RandomWeights net(kModelWidth);
  const auto& w = net.weights;
  const auto x = random_tensor({1, kModelWidth}, 7);
  const auto output = run_net(net, x, {{.begin = 0, .length = 1}});
  const auto project = [&](const Linear& linear, std::int64_t row) {
    double sum = 0.0;
    for (std::int64_t i = 0; i < kModelWidth; ++i)
      sum += at(linear.weight, row, i) * x.data<float>()[i];
    return sum;
  };
  const auto silu = [](double value) { return value / (1.0 + std::exp(-value)); };
  const auto convolved = [&](const Linear& linear, std::int64_t row, std::int64_t channel) {
    return silu(project(linear, row) *
                w.convolution[as_index((c.taps - 1) * c.channels() + channel)]);
  };
  for (std::int64_t head = 0; head < c.value_heads; ++head) {
    const auto key = head / 2 * c.d_key;
    double qq = 1e-6;
    double kk = 1e-6;
    double qk = 0.0;
    for (std::int64_t i = key; i < key + c.d_key; ++i) {
      const auto q = convolved(w.q, i, i);
      const auto k = convolved(w.k, i, c.key_width() + i);
      qq += q * q;
      kk += k * k;
      qk += q * k;
    }
    const double rate = 1.0 / (1.0 + std::exp(-project(w.b, head)));
    std::vector<double> out;
    double squares = 0.0;
    for (std::int64_t j = head * c.d_value; j < (head + 1) * c.d_value; ++j) {
      out.push_back(qk / std::sqrt(qq * kk * static_cast<double>(c.d_key)) * rate *
                    convolved(w.v, j, 2 * c.key_width() + j));
      squares += out.back() * out.back();
    }
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(c.d_value) + c.norm_eps);
    for (std::int64_t j = 0; j < c.d_value; ++j)
      EXPECT_NEAR(
          output.data<float>()[head * c.d_value + j],
          out[as_index(j)] * scale * w.norm[as_index(j)] * silu(project(w.z, head * c.d_value + j)),
          1e-5);  // float32 sums of up to 24 terms of order 1
  }
}

double silu_of(double value) {
  return value / (1.0 + std::exp(-value));
}

double sigmoid_of(double value) {
  return 1.0 / (1.0 + std::exp(-value));
}

// Projections of rows of x, in float64.
std::vector<double> project_rows(const Linear& linear, const Tensor& x) {
  const auto out = linear.weight.values.dim(0);
  std::vector<double> y(as_index(x.dim(0) * out), 0.0);
  for (std::int64_t row = 0; row < x.dim(0); ++row)
    for (std::int64_t o = 0; o < out; ++o)
      for (std::int64_t i = 0; i < x.dim(1); ++i)
        y[as_index(row * out + o)] += at(linear.weight, o, i) * x.data<float>()[row * x.dim(1) + i];
  return y;
}

// Causal convolution with bias of x (rows, width), whose channels begin at `first`, in float64.
std::vector<double> convolve_rows(const RandomWeights& net, const std::vector<double>& x,
                                  std::int64_t width, std::int64_t first) {
  const auto& c = net.config;
  std::vector<double> y(x.size());
  for (std::int64_t i = 0; i < std::ssize(x); ++i) {
    const auto channel = first + i % width;
    const auto& bias = net.weights.convolution_bias;
    y[as_index(i)] = bias.empty() ? 0.0f : bias[as_index(channel)];
    for (std::int64_t t = 0; t < c.taps; ++t) {
      const auto from = i - (c.taps - 1 - t) * width;
      if (from >= 0)
        y[as_index(i)] +=
            net.weights.convolution[as_index(t * c.channels() + channel)] * x[as_index(from)];
    }
  }
  return y;
}

TEST(ShortConvolution, AgreesWithPlainLoops) {
  const RandomWeights net(kModelWidth, kShort);
  const auto x = random_tensor({70, kModelWidth}, 7);
  const auto output = run_net(net, x, {{.begin = 0, .length = 70}});
  auto values = project_rows(net.weights.v, x);
  const auto before = project_rows(net.weights.k, x);
  const auto after = project_rows(net.weights.z, x);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] *= before[i];
  const auto convolved = convolve_rows(net, values, kShort.value_width(), 0);
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_NEAR(output.data<float>()[i], convolved[i] * after[i], 2e-5);
}

Tensor rounded(const std::vector<double>& values, std::int64_t width) {
  Tensor rows({std::ssize(values) / width, width});
  std::ranges::transform(values, rows.data<float>(),
                         [](double x) { return static_cast<float>(x); });
  return rows;
}

// The whole net in float64 around the recurrence, which the test above covers: projections,
// convolution, unit lengths, rates, decays, norm and gate.
TEST(KimiDelta, AgreesWithPlainLoops) {
  const auto& c = kKimi;
  const RandomWeights net(kModelWidth, c);
  const auto& w = net.weights;
  constexpr std::int64_t kTokens = 9;
  const auto x = random_tensor({kTokens, kModelWidth}, 7);
  const auto output = run_net(net, x, {{.begin = 0, .length = kTokens}});
  auto q = convolve_rows(net, project_rows(w.q, x), c.key_width(), 0);
  auto k = convolve_rows(net, project_rows(w.k, x), c.key_width(), c.key_width());
  auto v = convolve_rows(net, project_rows(w.v, x), c.value_width(), 2 * c.key_width());
  for (auto* part : {&q, &k, &v})
    for (double& value : *part) value = silu_of(value);
  auto decays = project_rows(w.a, rounded(project_rows(w.a_latent, x), c.d_key));
  for (std::size_t i = 0; i < decays.size(); ++i) {
    const auto channel = i % w.dt_bias.size();
    const double speed = std::exp(static_cast<double>(w.a_log[channel / as_index(c.d_key)]));
    decays[i] = -speed * std::log1p(std::exp(decays[i] + static_cast<double>(w.dt_bias[channel])));
  }
  auto rates = project_rows(w.b, x);
  for (double& rate : rates) rate = sigmoid_of(rate);
  Tensor qkv({kTokens, c.channels()});
  for (std::int64_t row = 0; row < kTokens; ++row)
    for (std::int64_t channel = 0; channel < c.channels(); ++channel) {
      const auto part = channel / c.key_width();
      const auto& from = part == 0 ? q : part == 1 ? k : v;
      const auto at = row * c.key_width() + channel % c.key_width();
      double squares = 1e-6;
      for (auto i = at / c.d_key * c.d_key; i < (at / c.d_key + 1) * c.d_key; ++i)
        squares += from[as_index(i)] * from[as_index(i)];
      const double length = part == 2 ? 1.0 : std::sqrt(squares * (part == 0 ? 70.0 : 1.0));
      qkv.data<float>()[row * c.channels() + channel] =
          static_cast<float>(from[as_index(at)] / length);
    }
  const auto expected =
      step_by_step(c, {std::move(qkv), rounded(rates, c.value_heads), rounded(decays, c.decays())});
  const auto z = project_rows(w.z, rounded(project_rows(w.z_latent, x), c.d_value));
  for (std::size_t i = 0; i < z.size(); ++i) {
    const auto head = i / as_index(c.d_value) * as_index(c.d_value);
    double squares = 0.0;
    for (std::size_t j = head; j < head + as_index(c.d_value); ++j)
      squares += expected.output[j] * expected.output[j];
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(c.d_value) + c.norm_eps);
    EXPECT_NEAR(output.data<float>()[i],
                expected.output[i] * scale * w.norm[i - head] * sigmoid_of(z[i]), 2e-5);
  }
}

// The whole net, token by token in float64: convolution, limited steps, recurrence, skip, gate and
// grouped norm.
TEST(Mamba2, AgreesWithPlainLoops) {
  const auto& c = kMamba2;
  const RandomWeights net(kModelWidth, c);
  const auto& w = net.weights;
  constexpr std::int64_t kTokens = 70;
  const auto x = random_tensor({kTokens, kModelWidth}, 7);
  const auto output = run_net(net, x, {{.begin = 0, .length = kTokens}});
  auto q = convolve_rows(net, project_rows(w.q, x), c.key_width(), 0);
  auto k = convolve_rows(net, project_rows(w.k, x), c.key_width(), c.key_width());
  auto v = convolve_rows(net, project_rows(w.v, x), c.value_width(), 2 * c.key_width());
  for (auto* part : {&q, &k, &v})
    for (double& value : *part) value = silu_of(value);
  const auto z = project_rows(w.z, x);
  const auto steps = project_rows(w.a, x);
  std::vector<double> y(v.size(), 0.0);
  std::vector<double> state(as_index(c.value_width() * c.d_key), 0.0);
  for (std::int64_t row = 0; row < kTokens; ++row)
    for (std::int64_t j = 0; j < c.value_width(); ++j) {
      const auto head = j / c.d_value;
      const auto key = row * c.key_width() + head / 2 * c.d_key;
      const double raw = steps[as_index(row * c.value_heads + head)] + w.dt_bias[as_index(head)];
      const double step = std::clamp(std::log1p(std::exp(raw)), c.least_rate, c.most_rate);
      const double decay = std::exp(-std::exp(static_cast<double>(w.a_log[as_index(head)])) * step);
      const auto place = as_index(row * c.value_width() + j);
      for (std::int64_t i = 0; i < c.d_key; ++i) {
        double& s = state[as_index(j * c.d_key + i)];
        s = decay * s + step * k[as_index(key + i)] * v[place];
        y[place] += s * q[as_index(key + i)];
      }
      y[place] = (y[place] + w.skip[as_index(head)] * v[place]) * silu_of(z[place]);
    }
  const auto width = c.value_width() / c.key_heads;
  for (std::int64_t group = 0; group < kTokens * c.key_heads; ++group) {
    double squares = 0.0;
    for (std::int64_t i = 0; i < width; ++i) squares += std::pow(y[as_index(group * width + i)], 2);
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(width) + c.norm_eps);
    for (std::int64_t i = group * width; i < (group + 1) * width; ++i)
      EXPECT_NEAR(output.data<float>()[i],
                  y[as_index(i)] * scale * w.norm[as_index(i % c.value_width())], 2e-5);
  }
}

}  // namespace
}  // namespace qkscope
