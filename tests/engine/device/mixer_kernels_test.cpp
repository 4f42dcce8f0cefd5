// Kernels of gated delta nets, Kimi Delta Attention, Mamba 2 and short convolutions against
// engine/ops, which has its own reference.
#include "engine/device/cuda/mixer/mixer_kernels.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/core/numbers.h"
#include "device_buffer.h"
#include "engine/device/recurrence_plan.h"
#include "engine/ops/linear.h"
#include "engine/ops/mixer.h"

namespace qkscope {
namespace {

constexpr std::int64_t kRows = 300;
const std::vector<Sequence> kSequences = {{0, 1}, {1, 63}, {64, 64}, {128, 65}, {193, 107}};
const std::vector<std::int64_t> kStateRows = {0, 63, 127, 150, 192, 299};

// Rows [begin, begin + length) of each sequence; `past` is whether states go on.
struct Piece {
  std::int32_t begin;
  std::int32_t length;
  bool past;
};
const std::vector<std::vector<Piece>> kOnePass = {
    {{0, 1, false}, {1, 63, false}, {64, 64, false}, {128, 65, false}, {193, 107, false}}};
// The last two sequences go on after 20 and 100 tokens in another pass.
const std::vector<std::vector<Piece>> kTwoPasses = {
    {{0, 1, false}, {1, 1, false}, {64, 63, false}, {128, 20, false}, {193, 100, false}},
    {{0, 1, false}, {2, 62, true}, {127, 1, true}, {148, 45, true}, {293, 7, true}}};

struct MixerResult {
  std::vector<float> output;  // (rows, value_heads, d_value)
  std::vector<float> states;  // after the state rows
};

std::vector<float> random_values(std::int64_t count, unsigned seed, float scale = 1.0f) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(as_index(count));
  for (auto& value : values) value = scale * normal(generator);
  return values;
}

TensorView view_of(std::vector<float>& values, Shape shape) {
  return {reinterpret_cast<std::byte*>(values.data()), DType::f32, std::move(shape)};
}

MixerResult empty_result(const MixerConfig& c) {
  return {std::vector<float>(as_index(kRows * c.value_width())),
          std::vector<float>(as_index(c.state_shape(std::ssize(kStateRows)).count()))};
}

// Copies the given rows of x (kRows, width) to the GPU as rows of `stride` elements.
DeviceBuffer upload_rows(const std::vector<float>& x, std::span<const std::int64_t> rows,
                         std::int64_t stride, DType dtype) {
  const auto width = std::ssize(x) / kRows;
  std::vector<float> taken(as_index(std::ssize(rows) * stride), 1e30f);
  for (std::int64_t i = 0; i < std::ssize(rows); ++i)
    std::copy_n(x.begin() + rows[as_index(i)] * width, width, taken.begin() + i * stride);
  return DeviceBuffer(encoded(taken, dtype));
}

// The rows of a pass, which is a batch of its own.
struct GpuPass {
  std::vector<std::int64_t> rows;  // among kRows
  std::vector<cuda::MixerSequence> sequences;
  std::vector<cuda::RecurrenceChunk> chunks{1};  // the first is not used: no buffer is empty
  std::vector<std::int32_t> row_sequences;       // (rows)
  std::vector<std::int32_t> state_rows;          // those of kStateRows, as indices of `rows`
  bool has_short_sequences = false;
};

// The states of a sequence alternate between two rows.
GpuPass make_pass(const std::vector<Piece>& pieces, std::int32_t number, bool in_chunks) {
  GpuPass pass;
  for (const auto& [begin, length, past] : pieces) {
    const auto slot = static_cast<std::int32_t>(pass.sequences.size());
    const auto first = static_cast<std::int32_t>(pass.rows.size());
    const bool is_short = !in_chunks || length < kCudaRecurrenceChunk;
    pass.has_short_sequences |= is_short;
    pass.sequences.push_back({first, length, past ? 2 * slot + number % 2 : -1,
                              2 * slot + 1 - number % 2,
                              is_short ? -1 : static_cast<std::int32_t>(pass.chunks.size())});
    for (std::int32_t i = 0; !is_short && i < length; i += 64)
      pass.chunks.push_back({first + i, std::min(64, length - i)});
    for (std::int32_t row = begin; row < begin + length; ++row) {
      if (std::ranges::find(kStateRows, row) != kStateRows.end())
        pass.state_rows.push_back(static_cast<std::int32_t>(pass.rows.size()));
      pass.rows.push_back(row);
      pass.row_sequences.push_back(slot);
    }
  }
  return pass;
}

// Runs passes one after another. run(a, rows) uploads the inputs of the given rows and calls the
// kernels. The states are those after the state rows of the last pass.
using RunPass = std::function<void(cuda::MixerArguments&, std::span<const std::int64_t>)>;
MixerResult run_on_gpu(const MixerConfig& c, DType dtype,
                       const std::vector<std::vector<Piece>>& passes, const RunPass& run) {
  MixerResult result{std::vector<float>(as_index(kRows * c.value_width())), {}};
  const auto slots = 2 * kSequences.size();
  DeviceBuffer states(slots * as_index(c.value_width() * c.d_key + 1) * sizeof(float));
  DeviceBuffer inputs(slots * as_index((c.taps - 1) * c.channels()) * sizeof(float));
  for (auto* buffer : {&states, &inputs}) buffer->poison();
  for (std::size_t number = 0; number < passes.size(); ++number) {
    const auto pass =
        make_pass(passes[number], static_cast<std::int32_t>(number), has_chunked_kernel(c, dtype));
    const DeviceBuffer sequences(pass.sequences), chunks(pass.chunks), wanted(pass.state_rows);
    const DeviceBuffer row_sequences(pass.row_sequences);
    const auto pairs = pass.chunks.size() * as_index(c.value_heads);
    const DeviceBuffer matrices(pairs * as_index(cuda_recurrence_matrix_bytes(c)));
    const DeviceBuffer factors(pairs * as_index(kCudaChunkFactorBytes));
    DeviceBuffer output(pass.rows.size() * as_index(c.value_width()) * dtype_size(dtype));
    const auto state_floats = c.state_shape(std::ssize(pass.state_rows)).count();
    DeviceBuffer row_states(as_index(state_floats) * sizeof(float));
    for (auto* buffer : {&output, &row_states}) buffer->poison();
    cuda::MixerArguments a{.config = c, .dtype = dtype, .rows = std::ssize(pass.rows)};
    a.sequences = sequences.get<cuda::MixerSequence>();
    a.sequence_count = std::ssize(pass.sequences);
    a.row_sequences = row_sequences.get<std::int32_t>();
    a.chunks = chunks.get<cuda::RecurrenceChunk>();
    a.chunk_count = pass.chunks.size() > 1 ? std::ssize(pass.chunks) : 0;
    a.has_short_sequences = pass.has_short_sequences;
    a.matrices = matrices.get();
    a.factors = factors.get<float>();
    a.output = output.get();
    a.inputs = inputs.get<float>();
    a.states = states.get<float>();
    a.state_rows = wanted.get<std::int32_t>();
    a.state_row_count = std::ssize(pass.state_rows);
    a.row_states = row_states.get<float>();
    run(a, pass.rows);
    const auto found = decoded(output.download<std::byte>(), dtype);
    for (std::int64_t i = 0; i < a.rows; ++i)
      std::copy_n(found.begin() + i * c.value_width(), c.value_width(),
                  result.output.begin() + pass.rows[as_index(i)] * c.value_width());
    result.states = row_states.download<float>();
  }
  return result;
}

double relative_difference(std::span<const float> found, std::span<const float> expected) {
  EXPECT_EQ(found.size(), expected.size());
  double squared = 0.0, size = 0.0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    squared += std::pow(static_cast<double>(found[i]) - static_cast<double>(expected[i]), 2);
    size += std::pow(static_cast<double>(expected[i]), 2);
  }
  return std::sqrt(squared / size);
}

// Differences of output and states of one pass, and of two passes, whose last state is compared.
struct Tolerance {
  double output;
  double states;
  double last_state;
};
void expect_near(const MixerConfig& c, DType dtype, const RunPass& run, const MixerResult& expected,
                 const Tolerance& tolerance) {
  const auto whole = run_on_gpu(c, dtype, kOnePass, run);
  EXPECT_LT(relative_difference(whole.output, expected.output), tolerance.output);
  EXPECT_LT(relative_difference(whole.states, expected.states), tolerance.states);
  const auto parts = run_on_gpu(c, dtype, kTwoPasses, run);
  EXPECT_LT(relative_difference(parts.output, expected.output), tolerance.output);
  const auto last = as_index(c.state_shape(1).count());
  EXPECT_LT(relative_difference(std::span(parts.states).last(last),
                                std::span(expected.states).last(last)),
            tolerance.last_state);
}

struct RecurrenceInput {
  std::vector<float> qkv;  // (rows, channels) values of the element type; q and k of unit length
  std::vector<float> rates;
  std::vector<float> log_decays;  // (rows, decays)
};

RecurrenceInput random_input(const MixerConfig& c, DType dtype) {
  RecurrenceInput input{random_values(kRows * c.channels(), 1),
                        random_values(kRows * c.value_heads, 2),
                        random_values(kRows * c.decays(), 3, 2.0f)};
  for (std::int64_t row = 0; row < kRows; ++row)
    for (std::int64_t head = 0; head < 2 * c.key_heads; ++head) {
      float* const x = input.qkv.data() + row * c.channels() + head * c.d_key;
      float squares = 0.0f;
      for (std::int64_t i = 0; i < c.d_key; ++i) squares += x[i] * x[i];
      const float length = c.has_delta_rule() ? std::sqrt(squares) : 1.0f;
      for (std::int64_t i = 0; i < c.d_key; ++i) x[i] /= length;
    }
  input.qkv = decoded(encoded(input.qkv, dtype), dtype);
  for (auto& rate : input.rates) rate = static_cast<float>(c.rate_scale) / (1.0f + std::exp(-rate));
  for (auto& decay : input.log_decays) decay = -std::exp(decay - 2.0f);
  return input;
}

MixerResult recurrence_on_cpu(const MixerConfig& c, RecurrenceInput input) {
  for (std::int64_t i = 0; i < std::ssize(input.qkv); ++i)
    if (c.has_delta_rule() && i % c.channels() < c.key_width())
      input.qkv[as_index(i)] /= std::sqrt(static_cast<float>(c.d_key));
  auto result = empty_result(c);
  run_linear_recurrence(
      {c, view_of(input.qkv, {kRows, c.channels()}), view_of(input.rates, {kRows, c.value_heads}),
       view_of(input.log_decays, {kRows, c.decays()}), kSequences, kStateRows},
      {view_of(result.states, c.state_shape(std::ssize(kStateRows)))},
      view_of(result.output, {kRows, c.value_heads, c.d_value}));
  return result;
}

struct Widths {
  Mixer kind;
  std::int64_t d_key;
  std::int64_t d_value;
};

class RecurrenceKernel : public GpuTest<testing::TestWithParam<std::tuple<DType, Widths>>> {};

// A 16-bit output is rounded once; its state is nearly that of float32 arithmetic.
TEST_P(RecurrenceKernel, AgreesWithTheCpu) {
  const auto& [dtype, widths] = GetParam();
  const bool is_kimi = widths.kind == Mixer::kimi_delta;
  const MixerConfig config{.kind = widths.kind,
                           .key_heads = is_kimi ? 4 : 2,
                           .value_heads = 4,
                           .d_key = widths.d_key,
                           .d_value = widths.d_value,
                           .rate_scale = widths.d_key == 96 ? 2.0 : 1.0};
  const auto input = random_input(config, dtype);
  auto decay_input = input.log_decays;
  for (float& x : decay_input) x = is_kimi ? std::exp(x) : x;
  const auto run = [&, dtype = dtype](cuda::MixerArguments& a, std::span<const std::int64_t> rows) {
    const auto qkv = upload_rows(input.qkv, rows, config.channels(), dtype);
    const auto rates = upload_rows(input.rates, rows, config.value_heads, DType::f32);
    const auto decays = upload_rows(decay_input, rows, config.decays(), DType::f32);
    a.qkv = qkv.get();
    a.rates = rates.get<float>();
    (is_kimi ? a.channel_decays : a.log_decays) = decays.get<float>();
    cuda::run_recurrence(a, nullptr);
    require(cudaDeviceSynchronize());
  };
  expect_near(config, dtype, run, recurrence_on_cpu(config, input),
              {.output = dtype == DType::f32   ? 1e-5
                         : dtype == DType::f16 ? 4e-4
                                               : 3e-3,
               .states = 1e-5,
               .last_state = 1e-4});
}

std::string widths_name(const testing::TestParamInfo<std::tuple<DType, Widths>>& info) {
  const auto& [dtype, widths] = info.param;
  const char* kind = widths.kind == Mixer::gated_delta  ? "gated_delta"
                     : widths.kind == Mixer::kimi_delta ? "kimi_delta"
                                                        : "mamba2";
  return fmt::format("{}_{}_{}_{}", dtype_name(dtype), kind, widths.d_key, widths.d_value);
}
INSTANTIATE_TEST_SUITE_P(
    Widths, RecurrenceKernel,
    testing::Combine(
        testing::Values(DType::f32, DType::bf16, DType::f16),
        testing::Values(Widths{Mixer::gated_delta, 6, 10}, Widths{Mixer::gated_delta, 64, 64},
                        Widths{Mixer::gated_delta, 96, 192}, Widths{Mixer::gated_delta, 128, 128},
                        Widths{Mixer::gated_delta, 130, 20}, Widths{Mixer::gated_delta, 256, 256},
                        Widths{Mixer::kimi_delta, 6, 10}, Widths{Mixer::kimi_delta, 128, 128},
                        Widths{Mixer::kimi_delta, 96, 20}, Widths{Mixer::kimi_delta, 250, 256},
                        Widths{Mixer::mamba2, 12, 10}, Widths{Mixer::mamba2, 64, 64},
                        Widths{Mixer::mamba2, 128, 64}, Widths{Mixer::mamba2, 256, 128},
                        Widths{Mixer::mamba2, 250, 20})),
    widths_name);

struct MixerCase {
  const char* name;
  MixerConfig config;
  bool has_norm = true;
};

const MixerCase kMixerCases[] = {
    {"GatedDelta",
     {.kind = Mixer::gated_delta, .key_heads = 2, .value_heads = 4, .d_key = 6, .d_value = 10}},
    {"GatedDeltaInChunks",
     {.kind = Mixer::gated_delta, .key_heads = 1, .value_heads = 2, .d_key = 64, .d_value = 64}},
    {"KimiDelta",
     {.kind = Mixer::kimi_delta, .key_heads = 3, .value_heads = 3, .d_key = 6, .d_value = 10}},
    {"WideKimiDelta",
     {.kind = Mixer::kimi_delta, .key_heads = 3, .value_heads = 3, .d_key = 128, .d_value = 128}},
    {"Mamba2",
     {.kind = Mixer::mamba2,
      .key_heads = 2,
      .value_heads = 6,
      .d_key = 12,
      .d_value = 5,
      .taps = 3,
      .least_rate = 0.3,
      .most_rate = 1.2,
      .gate_before_norm = true}},
    {"Mamba2InChunks",
     {.kind = Mixer::mamba2, .key_heads = 1, .value_heads = 2, .d_key = 128, .d_value = 64}},
    {"Mamba2WithoutNorm",
     {.kind = Mixer::mamba2, .key_heads = 2, .value_heads = 2, .d_key = 16, .d_value = 8},
     false},
    {"Mamba2OfWideGroups",
     {.kind = Mixer::mamba2,
      .key_heads = 1,
      .value_heads = 18,
      .d_key = 4,
      .d_value = 60,
      .gate_before_norm = true}},
    {"ShortConvolution",
     {.kind = Mixer::short_convolution, .value_heads = 1, .d_value = 42, .taps = 3}},
    {"WideShortConvolution",
     {.kind = Mixer::short_convolution, .value_heads = 1, .d_value = 300, .taps = 4}}};

// Weights of a mixer whose input is the concatenation of its projections, or of their latents.
struct IdentityMixer {
  IdentityMixer(const MixerCase& mixer, std::int64_t width) : identity({width, width}) {
    const auto& c = mixer.config;
    std::fill_n(identity.data<float>(), identity.size(), 0.0f);
    for (std::int64_t i = 0; i < width; ++i) identity.data<float>()[i * width + i] = 1.0f;
    const bool recurs = c.kind != Mixer::short_convolution;
    const bool is_delta = c.has_delta_rule();
    const bool in_ranks = c.gate_rank() > 0;
    std::int64_t first = 0;
    const auto take = [&](Linear& part, std::int64_t count) {
      if (count > 0) part.weight.values = identity.view().rows(first, first + count);
      first += count;
    };
    take(weights.q, c.key_width());
    take(weights.k, recurs ? c.key_width() : c.value_width());
    take(weights.v, c.value_width());
    take(weights.z, in_ranks ? 0 : c.value_width());
    take(weights.b, is_delta ? c.value_heads : 0);
    take(weights.a, recurs && !in_ranks ? c.value_heads : 0);
    take(weights.z_latent, in_ranks ? c.d_value : 0);
    take(weights.a_latent, in_ranks ? c.d_key : 0);
    z = random_values(in_ranks ? c.value_width() * c.d_value : 0, 10, 0.3f);
    a = random_values(in_ranks ? c.decays() * c.d_key : 0, 11, 0.3f);
    if (in_ranks) weights.z.weight.values = view_of(z, {c.value_width(), c.d_value});
    if (in_ranks) weights.a.weight.values = view_of(a, {c.decays(), c.d_key});
    weights.convolution = random_values(c.taps * c.channels(), 4, 0.5f);
    if (!is_delta) weights.convolution_bias = random_values(c.channels(), 5, 0.5f);
    if (!recurs) return;
    weights.a_log = random_values(c.value_heads, 6);
    weights.dt_bias = random_values(c.decays(), 7);
    if (!is_delta) weights.skip = random_values(c.value_heads, 8);
    if (mixer.has_norm) weights.norm = random_values(is_delta ? c.d_value : c.value_width(), 9);
  }
  static std::int64_t width_of(const MixerConfig& c) {
    if (c.kind == Mixer::short_convolution) return 3 * c.value_width();
    if (c.kind == Mixer::kimi_delta) return c.channels() + c.value_heads + c.gate_rank();
    return c.channels() + c.value_width() + (c.kind == Mixer::gated_delta ? 2 : 1) * c.value_heads;
  }

  Tensor identity;
  std::vector<float> z;  // of low rank
  std::vector<float> a;
  MixerWeights weights;
};

// Returns x (kRows, width) multiplied by a matrix of low rank; one unused column without a matrix.
std::vector<float> multiply_low_rank(const std::vector<float>& x, const Linear& latent,
                                     const Linear& matrix) {
  if (latent.weight.values.empty()) return std::vector<float>(as_index(kRows));
  auto input = x;
  Tensor low({kRows, latent.weight.out()});
  std::vector<float> y(as_index(kRows * matrix.weight.out()));
  apply_linear(view_of(input, {kRows, std::ssize(x) / kRows}), latent, low);
  apply_linear(low, matrix, view_of(y, {kRows, matrix.weight.out()}));
  return y;
}

// Runs all kernels of a mixer on its projections (rows, width of `projected`).
void run_kernels(cuda::MixerArguments& a, const MixerWeights& w, std::span<const std::int64_t> rows,
                 const std::vector<float>& projected) {
  const auto& c = a.config;
  a.stride = (std::ssize(projected) / kRows + 7) / 8 * 8;
  const auto x = upload_rows(projected, rows, a.stride, a.dtype);
  std::deque<DeviceBuffer> vectors;
  const auto upload = [&](const std::vector<float>& values) -> const float* {
    if (values.empty()) return nullptr;
    return vectors.emplace_back(values).get<float>();
  };
  a.projected = x.get();
  a.vectors = {.convolution = upload(w.convolution),
               .convolution_bias = upload(w.convolution_bias),
               .a_log = upload(w.a_log),
               .dt_bias = upload(w.dt_bias),
               .skip = upload(w.skip),
               .norm = upload(w.norm)};
  DeviceBuffer qkv(as_index(a.rows * c.channels()) * dtype_size(a.dtype));
  DeviceBuffer rates(as_index(a.rows * (c.value_heads + c.decays())) * sizeof(float));
  for (auto* buffer : {&qkv, &rates}) buffer->poison();
  a.qkv = qkv.get();
  a.rates = rates.get<float>();
  (c.gate_rank() > 0 ? a.channel_decays : a.log_decays) = a.rates + a.rows * c.value_heads;
  const auto z = multiply_low_rank(projected, w.z_latent, w.z);
  const auto decay_input = multiply_low_rank(projected, w.a_latent, w.a);
  const auto low_rank_z = upload_rows(z, rows, std::ssize(z) / kRows, a.dtype);
  const auto low_rank_a = upload_rows(decay_input, rows, std::ssize(decay_input) / kRows, a.dtype);
  a.low_rank_z = low_rank_z.get();
  a.low_rank_a = low_rank_a.get();
  cuda::convolve_inputs(a, nullptr);
  if (c.kind != Mixer::short_convolution) {
    cuda::run_recurrence(a, nullptr);
    cuda::normalize_and_gate_output(a, nullptr);
  }
  require(cudaDeviceSynchronize());
}

class MixerKernels : public GpuTest<testing::TestWithParam<std::tuple<DType, MixerCase>>> {};

// In 16 bits q, k, v and the output before its norm are rounded.
TEST_P(MixerKernels, AgreeWithTheCpu) {
  const auto& [dtype, mixer] = GetParam();
  const auto& c = mixer.config;
  const auto width = IdentityMixer::width_of(c);
  const IdentityMixer cpu(mixer, width);
  auto x = random_values(kRows * width, 1);
  x = decoded(encoded(x, dtype), dtype);
  auto expected = empty_result(c);
  apply_mixer({c, cpu.weights, view_of(x, {kRows, width}), kSequences, kStateRows},
              {view_of(expected.states, c.state_shape(std::ssize(kStateRows)))},
              view_of(expected.output, {kRows, c.value_heads, c.d_value}));
  const auto run = [&](cuda::MixerArguments& a, std::span<const std::int64_t> rows) {
    run_kernels(a, cpu.weights, rows, x);
  };
  const double tolerance = dtype == DType::f32 ? 1e-5 : dtype == DType::f16 ? 2e-3 : 1.5e-2;
  expect_near(c, dtype, run, expected, {tolerance, tolerance, tolerance});
}

INSTANTIATE_TEST_SUITE_P(Kinds, MixerKernels,
                         testing::Combine(testing::Values(DType::f32, DType::bf16, DType::f16),
                                          testing::ValuesIn(kMixerCases)),
                         [](const auto& mixer) {
                           return std::string(std::get<1>(mixer.param).name) + "_" +
                                  std::string(dtype_name(std::get<0>(mixer.param)));
                         });

}  // namespace
}  // namespace qkscope
