#include "engine/device/cuda/elements.cuh"
#include "engine/device/cuda/mixer/mixer_kernels.h"
#include "engine/device/recurrence_plan.h"

namespace qkscope::cuda {
namespace {

constexpr int kColumns = 16;  // columns of the state in a block
constexpr int kLanesPerColumn = 8;
constexpr int kWidest = static_cast<int>(kCudaWidestKeys);

// Token-by-token recurrence of sequences that are not split into chunks; computes `row_states` of
// every sequence. One block per sequence, head and kColumns state columns; eight lanes per column.
template <typename T, int kPerLane, bool kHasChannelDecays>
__global__ void token_recurrence_kernel(MixerArguments a) {
  const auto& c = a.config;
  const int heads = static_cast<int>(c.value_heads);
  const int tiles = static_cast<int>((c.d_value + kColumns - 1) / kColumns);
  const int head = static_cast<int>(blockIdx.x) / tiles % heads;
  const MixerSequence s = a.sequences[blockIdx.x / tiles / heads];
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
  const T* const qkv = static_cast<const T*>(a.qkv) + s.begin * a.channels;
  const T* k = qkv + a.key_width + head / (c.value_heads / c.key_heads) * c.d_key;
  const T* v = qkv + 2 * a.key_width + head * c.d_value + column;
  const float scale = a.has_delta_rule ? rsqrtf(static_cast<float>(c.d_key)) : 1.0f;
  const float skip = a.vectors.skip == nullptr ? 0.0f : a.vectors.skip[head];
  std::int64_t wanted = 0;
  while (wanted < a.state_row_count && a.state_rows[wanted] < s.begin) ++wanted;
  for (std::int64_t row = s.begin; row < s.begin + s.length;
       ++row, k += a.channels, v += a.channels) {
    const std::int64_t at = row * heads + head;
    const float decay = kHasChannelDecays ? 1.0f : expf(a.log_decays[at]);
    if constexpr (kHasChannelDecays)
      visit_state([&](float& x, int key) { x *= a.channel_decays[at * c.d_key + key]; });
    const float value = inside ? to_float(*v) : 0.0f;
    float predicted = 0.0f, output = 0.0f;
    if (a.has_delta_rule) {  // subtracts the state's prediction from v
      visit_state([&](float& x, int key) { predicted = fmaf(x, to_float(k[key]), predicted); });
      predicted = decay * warp_sum<kLanesPerColumn>(predicted);
    }
    const float written = a.rates[at] * (value - predicted);
    visit_state([&](float& x, int key) {
      x = fmaf(to_float(k[key]), written, decay * x);
      output = fmaf(x, to_float(k[key - a.key_width]), output);
    });
    output = scale * warp_sum<kLanesPerColumn>(output);
    if (!a.has_delta_rule) output = fmaf(skip, value, output);
    if (is_short && inside && lane == 0)
      static_cast<T*>(a.output)[at * c.d_value + column] = from_float<T>(output);
    while (wanted < a.state_row_count && a.state_rows[wanted] == row)
      store_state(a.row_states, wanted++);
  }
  if (is_short && s.next_row >= 0) store_state(a.states, s.next_row);
}

}  // namespace

void run_recurrence(const MixerArguments& a, cudaStream_t stream) {
  const auto& c = a.config;
  if (a.chunk_count > 0) run_recurrence_in_chunks(a, stream);
  if (!a.has_short_sequences && a.state_row_count == 0) return;
  const auto blocks = a.sequence_count * c.value_heads * ((c.d_value + kColumns - 1) / kColumns);
  dispatch_element_type(a.dtype, [&](auto type) {
    dispatch_width<32, 64, 128, kWidest>(c.d_key, [&](auto width) {
      using T = decltype(type);
      constexpr int kPerLane = decltype(width)::value / kLanesPerColumn;
      launch_with_shared_memory("run a recurrence token by token",
                                a.channel_decays != nullptr
                                    ? token_recurrence_kernel<T, kPerLane, true>
                                    : token_recurrence_kernel<T, kPerLane, false>,
                                blocks, kColumns * kLanesPerColumn, 0, stream, a);
    });
  });
}

}  // namespace qkscope::cuda
