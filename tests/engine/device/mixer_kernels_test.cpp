// Kernels of gated delta nets against the recurrence of engine/ops, which has its own reference.
#include "engine/device/cuda/mixer/mixer_kernels.h"

#include <algorithm>
#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "base/core/numbers.h"
#include "device_buffer.h"
#include "engine/device/recurrence_plan.h"
#include "engine/ops/mixer.h"

namespace qkscope {
namespace {

constexpr std::int64_t kRows = 300;

struct RuleInput {
  std::vector<float> qkv;  // (rows, channels) values of the element type; q and k of unit length
  std::vector<float> rates;
  std::vector<float> log_decays;
};

RuleInput random_input(const MixerConfig& c, DType dtype) {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  RuleInput input{std::vector<float>(as_index(kRows * c.channels())),
                  std::vector<float>(as_index(kRows * c.value_heads)),
                  std::vector<float>(as_index(kRows * c.value_heads))};
  for (auto& x : input.qkv) x = normal(generator);
  for (std::int64_t row = 0; row < kRows; ++row)
    for (std::int64_t head = 0; head < 2 * c.key_heads; ++head) {
      float* const x = input.qkv.data() + row * c.channels() + head * c.d_key;
      float squares = 0.0f;
      for (std::int64_t i = 0; i < c.d_key; ++i) squares += x[i] * x[i];
      for (std::int64_t i = 0; i < c.d_key; ++i) x[i] /= std::sqrt(squares);
    }
  input.qkv = decoded(encoded(input.qkv, dtype), dtype);
  for (auto& rate : input.rates)
    rate = static_cast<float>(c.rate_scale) / (1.0f + std::exp(-normal(generator)));
  for (auto& decay : input.log_decays) decay = -std::exp(2.0f * normal(generator) - 2.0f);
  return input;
}

struct RuleResult {
  std::vector<float> output;
  std::vector<float> states;  // after state_rows
};

RuleResult on_cpu(const MixerConfig& c, RuleInput input, std::span<const Sequence> sequences,
                  std::span<const std::int64_t> state_rows) {
  for (std::int64_t i = 0; i < std::ssize(input.qkv); ++i)
    if (i % c.channels() < c.key_width())
      input.qkv[as_index(i)] /= std::sqrt(static_cast<float>(c.d_key));
  const auto view = [](std::vector<float>& values, Shape shape) {
    return TensorView(reinterpret_cast<std::byte*>(values.data()), DType::f32, std::move(shape));
  };
  RuleResult result{
      std::vector<float>(as_index(kRows * c.value_width())),
      std::vector<float>(as_index(std::ssize(state_rows) * c.value_width() * c.d_key))};
  linear_recurrence(
      {c, view(input.qkv, {kRows, c.channels()}), view(input.rates, {kRows, c.value_heads}),
       view(input.log_decays, {kRows, c.value_heads}), sequences, state_rows},
      {view(result.states, {std::ssize(state_rows), c.value_heads, c.d_key, c.d_value})},
      view(result.output, {kRows, c.value_heads, c.d_value}));
  return result;
}

// Runs rows [begin, begin + length) of each sequence; `past` is whether states go on.
struct Piece {
  std::int32_t begin;
  std::int32_t length;
  bool past;
};

// Passes one after another; the states of a sequence alternate between two rows.
RuleResult on_gpu(const MixerConfig& c, const RuleInput& input, DType dtype,
                  const std::vector<std::vector<Piece>>& passes,
                  std::span<const std::int64_t> state_rows) {
  const DeviceBuffer qkv(encoded(input.qkv, dtype)), rates(input.rates), decays(input.log_decays);
  const DeviceBuffer wanted(std::vector<std::int32_t>(state_rows.begin(), state_rows.end()));
  const auto state_floats = as_index(c.value_width() * c.d_key);
  DeviceBuffer output(as_index(kRows * c.value_width()) * dtype_size(dtype));
  DeviceBuffer states(2 * passes.front().size() * state_floats * sizeof(float));
  DeviceBuffer row_states(state_rows.size() * state_floats * sizeof(float));
  for (auto* buffer : {&output, &states, &row_states}) buffer->poison();
  for (std::size_t pass = 0; pass < passes.size(); ++pass) {
    std::vector<cuda::MixerSequence> sequences;
    std::vector<cuda::RecurrenceChunk> chunks(1);  // the first is not used: no buffer is empty
    bool has_short = false;
    for (const auto& [begin, length, past] : passes[pass]) {
      const auto slot = static_cast<std::int32_t>(sequences.size());
      const auto now = static_cast<std::int32_t>(pass % 2);
      const bool is_short = !runs_in_cuda_chunks(c, dtype) || length < kCudaRecurrenceChunk;
      has_short |= is_short;
      sequences.push_back({begin, length, past ? 2 * slot + now : -1, 2 * slot + 1 - now,
                           is_short ? -1 : static_cast<std::int32_t>(chunks.size())});
      for (std::int32_t i = 0; !is_short && i < length; i += 64)
        chunks.push_back({begin + i, std::min(64, length - i)});
    }
    const DeviceBuffer device_sequences(sequences), device_chunks(chunks);
    const auto pairs = chunks.size() * as_index(c.value_heads);
    const DeviceBuffer matrices(pairs * as_index(kCudaChunkMatrixBytes));
    const DeviceBuffer factors(pairs * as_index(kCudaChunkFactorBytes));
    cuda::MixerArguments a{.config = c, .dtype = dtype, .rows = kRows};
    a.sequences = device_sequences.get<cuda::MixerSequence>();
    a.sequence_count = std::ssize(sequences);
    a.chunks = device_chunks.get<cuda::RecurrenceChunk>();
    a.chunk_count = chunks.size() > 1 ? std::ssize(chunks) : 0;
    a.has_short_sequences = has_short;
    a.qkv = qkv.get();
    a.rates = rates.get<float>();
    a.log_decays = decays.get<float>();
    a.matrices = matrices.get();
    a.factors = factors.get<float>();
    a.output = output.get();
    a.states = states.get<float>();
    a.state_rows = wanted.get<std::int32_t>();
    a.state_row_count = pass + 1 == passes.size() ? std::ssize(state_rows) : 0;
    a.row_states = row_states.get<float>();
    cuda::run_recurrence(a, nullptr);
    require(cudaDeviceSynchronize());
  }
  return {decoded(output.download<std::byte>(), dtype), row_states.download<float>()};
}

double relative_difference(const std::vector<float>& found, const std::vector<float>& expected) {
  EXPECT_EQ(found.size(), expected.size());
  double squared = 0.0, size = 0.0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    squared += std::pow(static_cast<double>(found[i]) - static_cast<double>(expected[i]), 2);
    size += std::pow(static_cast<double>(expected[i]), 2);
  }
  return std::sqrt(squared / size);
}

struct Widths {
  std::int64_t d_key;
  std::int64_t d_value;
};

class GatedDeltaKernel : public GpuTest<testing::TestWithParam<std::tuple<DType, Widths>>> {};

// Sequences of 1, 63, 64, 65 and 107 tokens; the last two go on after 20 and 100 tokens in another
// pass. A 16-bit output is rounded once; its state is nearly that of float32 arithmetic.
TEST_P(GatedDeltaKernel, AgreesWithTheCpu) {
  const auto& [dtype, widths] = GetParam();
  const MixerConfig config{.kind = Mixer::gated_delta,
                           .key_heads = 2,
                           .value_heads = 4,
                           .d_key = widths.d_key,
                           .d_value = widths.d_value,
                           .rate_scale = widths.d_key == 96 ? 2.0 : 1.0};
  const auto input = random_input(config, dtype);
  const std::vector<Sequence> sequences = {{0, 1}, {1, 63}, {64, 64}, {128, 65}, {193, 107}};
  const std::vector<std::int64_t> state_rows = {0, 63, 127, 150, 192, 299};
  const auto expected = on_cpu(config, input, sequences, state_rows);
  const double tolerance = dtype == DType::f32 ? 1e-5 : dtype == DType::f16 ? 4e-4 : 3e-3;
  const std::vector<std::vector<Piece>> at_once = {
      {{0, 1, false}, {1, 63, false}, {64, 64, false}, {128, 65, false}, {193, 107, false}}};
  const auto whole = on_gpu(config, input, dtype, at_once, state_rows);
  EXPECT_LT(relative_difference(whole.output, expected.output), tolerance);
  EXPECT_LT(relative_difference(whole.states, expected.states), 1e-5);
  const std::vector<std::vector<Piece>> in_two = {
      {{0, 1, false}, {1, 1, false}, {64, 63, false}, {128, 20, false}, {193, 100, false}},
      {{0, 1, false}, {2, 62, true}, {127, 1, true}, {148, 45, true}, {293, 7, true}}};
  const auto parts = on_gpu(config, input, dtype, in_two, std::vector<std::int64_t>{192, 299});
  EXPECT_LT(relative_difference(parts.output, expected.output), tolerance);
  const std::vector<float> last(expected.states.end() - std::ssize(parts.states) / 2,
                                expected.states.end());
  EXPECT_LT(
      relative_difference({parts.states.begin() + std::ssize(last), parts.states.end()}, last),
      1e-4);
}

INSTANTIATE_TEST_SUITE_P(Widths, GatedDeltaKernel,
                         testing::Combine(testing::Values(DType::f32, DType::bf16, DType::f16),
                                          testing::Values(Widths{6, 10}, Widths{64, 64},
                                                          Widths{96, 192}, Widths{128, 128},
                                                          Widths{130, 20}, Widths{256, 256})));

}  // namespace
}  // namespace qkscope
