#include "engine/device/cuda/attention/attention.h"

#include <algorithm>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "base/core/error.h"
#include "engine/device/backend.h"
#include "engine/device/cuda/cuda_devices.h"
#include "engine/device/cuda/pass_context.h"
#include "engine/ops/attention.h"

namespace qkscope::cuda {
namespace {

constexpr int kHopper = 90;        // sm_90a code runs on no other architecture
constexpr int kFirstWithMma = 80;  // oldest architecture of cuDNN's fused kernels

// Returns true if FlashInfer's kernel was the fastest one for these properties in benchmarks.
bool flash_infer_is_fastest(const AttentionKernelCriteria& attention) {
  if (attention.capability != kHopper) return false;
  if (attention.d_value != attention.d_head)
    return attention.d_head == 192 && attention.d_value == 128 && !attention.softcap;
  if (attention.softcap) return attention.d_head == 128 || attention.d_head == 256;
  return attention.d_head == 64 || attention.d_head == 96 || attention.d_head == 128 ||
         attention.d_head == 256;
}

// cuDNN lacks soft caps, chunked attention, per-layer scales, and the log-sum-exp that sinks need.
bool cudnn_supports(const AttentionKernelCriteria& attention) {
  return attention.capability >= kFirstWithMma && !attention.softcap && !attention.sinks &&
         !attention.own_scale && !attention.chunks;
}

constexpr std::int64_t kMostBytes = std::int64_t{128} << 20;  // limit of the scores held on the GPU

// Copies rows [begin, begin + count) of all heads to the host, into `to` (heads, rows, keys).
void copy_rows_to_host(const float* from, TensorView to, std::int64_t begin, std::int64_t count,
                       cudaStream_t stream) {
  if (to.empty()) return;
  const auto width = as_index(count * to.dim(2) * kFloatBytes);
  const auto pitch = as_index(to.dim(1) * to.dim(2) * kFloatBytes);
  check(cudaMemcpy2DAsync(to.data<float>() + begin * to.dim(2), pitch, from, width, width,
                          as_index(to.dim(0)), cudaMemcpyDeviceToHost, stream),
        "copy scores to the host");
}

// Bytes of 16-bit keys and values whose tiles are scheduled together, so that they stay in L2. On
// an H200 (50 MB of L2), 8 MB was the fastest of 8, 32 and 48 MB, or within 0.2 % of the fastest.
constexpr std::int64_t kCachedBytes = 8'000'000;

struct SequenceKeyHead {
  Sequence sequence;
  std::int64_t head;
};

struct ScheduledTile {
  std::int64_t tile;
  const SequenceKeyHead* keys;
};

}  // namespace

AttentionKernel choose_attention_kernel(const AttentionKernelCriteria& attention,
                                        const AttentionLibraries& has) {
  const bool is_16_bit = attention.dtype == DType::bf16 || attention.dtype == DType::f16;
  if (!is_16_bit || attention.chosen_rows) return AttentionKernel::own;
  if (has.flash_infer && flash_infer_is_fastest(attention)) return AttentionKernel::flash_infer;
  if (has.cudnn && cudnn_supports(attention)) return AttentionKernel::cudnn;
  return AttentionKernel::own;
}

void compute_attention(const AttentionArguments& a, cudaStream_t stream) {
  QKSCOPE_ASSERT(a.n_heads > 0 && a.n_kv_heads > 0 && a.n_heads % a.n_kv_heads == 0);
  QKSCOPE_ASSERT(a.scale > 0.0f);
  QKSCOPE_ASSERT((a.row_stats.lse == nullptr) == (a.row_stats.largest == nullptr));
  const auto [narrow, wide] = std::minmax(a.d_head, a.d_value);
  if (narrow < 1 || wide > 512)
    reject(
        "attention on CUDA: heads of {} dimensions; expected 1 to 512. The CPU backend takes any "
        "size",
        wide);
  if (a.queries == 0) return;
  switch (a.dtype) {
    case DType::bf16:
      return compute_attention_16bit<__nv_bfloat16>(a, stream);
    case DType::f16:
      return compute_attention_16bit<__half>(a, stream);
    case DType::f32:
      return compute_attention_f32(a, stream);
    default:
      reject("attention on CUDA: {} vectors; expected bfloat16, float16 or float32",
             dtype_name(a.dtype));
  }
}

void compute_selected_scores(const ScoreRowsArguments& a, cudaStream_t stream) {
  QKSCOPE_ASSERT(a.n_heads > 0 && a.n_kv_heads > 0 && a.n_heads % a.n_kv_heads == 0);
  QKSCOPE_ASSERT(a.dtype == DType::bf16 || a.dtype == DType::f16 || a.dtype == DType::f32);
  QKSCOPE_ASSERT(a.d_head > 0);
  if (a.count == 0 || a.keys == 0) return;
  launch_score_kernel(a, stream);
  if (a.pattern != nullptr) launch_pattern_kernel(a, stream);
}

void compute_and_copy_scores(const AttentionScores& out, const QueriesAndKeys& source,
                             ActiveRows& rows, cudaStream_t stream) {
  const auto total = static_cast<std::int64_t>(out.rows.size());
  const auto keys = (out.scores.empty() ? out.pattern : out.scores).dim(2);
  const auto step =
      std::clamp<std::int64_t>(kMostBytes / (source.n_heads * keys * kFloatBytes), 1, total);
  const auto bytes = step * source.n_heads * keys * kFloatBytes;
  UploadBuffer numbers;
  DeviceMemory scores, pattern;
  for (std::int64_t begin = 0; begin < total; begin += step) {
    const auto count = std::min(step, total - begin);
    const auto ranges = rows.key_ranges(out.rows.subspan(as_index(begin), as_index(count)),
                                        source.window, source.chunk);
    const auto* at = numbers.upload(ranges, "row numbers", stream);
    ScoreRowsArguments arguments{source};
    arguments.rows = at;
    arguments.first_key = at + count;
    arguments.last_key = at + 2 * count;
    arguments.sequence_begin = at + 3 * count;
    arguments.count = count;
    arguments.keys = keys;
    arguments.scores = static_cast<float*>(scores.reserve(bytes, "scores"));
    if (!out.pattern.empty())
      arguments.pattern = static_cast<float*>(pattern.reserve(bytes, "patterns"));
    compute_selected_scores(arguments, stream);
    copy_rows_to_host(scores.as<float>(), out.scores, begin, count, stream);
    copy_rows_to_host(pattern.as<float>(), out.pattern, begin, count, stream);
    check(cudaStreamSynchronize(stream), "wait for scores");
  }
}

std::vector<AttentionTile> schedule_attention_tiles(std::span<const Sequence> sequences,
                                                    const AttentionTiling& shape) {
  std::vector<SequenceKeyHead> key_heads;
  for (const auto& sequence : sequences)
    for (std::int64_t head = 0; head < shape.n_kv_heads; ++head)
      key_heads.push_back({sequence, head});
  const auto bytes = [&](const SequenceKeyHead& keys) {
    return keys.sequence.length * shape.d_head * 4;
  };
  const auto group = shape.n_heads / shape.n_kv_heads;
  std::vector<AttentionTile> order;
  for (auto first = key_heads.begin(); first != key_heads.end();) {
    std::vector<ScheduledTile> together;
    auto last = first;
    for (std::int64_t cached = 0;
         last != key_heads.end() && (last == first || cached + bytes(*last) <= kCachedBytes);
         ++last) {
      cached += bytes(*last);
      for (std::int64_t tile = 0; tile * shape.rows < last->sequence.length; ++tile)
        together.push_back({tile, &*last});
    }
    std::stable_sort(
        together.begin(), together.end(),
        [](const ScheduledTile& a, const ScheduledTile& b) { return a.tile > b.tile; });
    for (const auto& [tile, keys] : together)
      for (std::int64_t head = keys->head * group; head < (keys->head + 1) * group; ++head)
        order.push_back({static_cast<std::int32_t>(keys->sequence.begin),
                         static_cast<std::int32_t>(keys->sequence.length),
                         static_cast<std::int32_t>(tile), static_cast<std::int32_t>(head)});
    first = last;
  }
  return order;
}

HopperAttention::HopperAttention(const ModelConfig& model, DType dtype, int device,
                                 cudaStream_t stream)
    : model_(model),
      dtype_(dtype),
      stream_(stream),
      multiprocessors_(multiprocessor_count(device)),
      head_{model.d_head, model.d_value(), model.attention_softcap > 0.0} {
  const AttentionKernelCriteria any_layer{.capability = compute_capability(device),
                                          .dtype = dtype,
                                          .d_head = model.d_head,
                                          .d_value = model.d_value(),
                                          .softcap = head_.softcap,
                                          .sinks = model.has_sinks()};
  const AttentionLibraries has{.flash_infer = hopper_tile_rows(head_, 0) > 0};
  serves_ = choose_attention_kernel(any_layer, has) == AttentionKernel::flash_infer;
}

void HopperAttention::set_sequences(std::span<const Sequence> sequences) {
  rows_ = 0;
  longest_ = 0;
  for (const auto& sequence : sequences) {
    rows_ = std::max(rows_, sequence.begin + sequence.length);
    longest_ = std::max(longest_, sequence.length);
  }
  const auto tiles =
      schedule_attention_tiles(sequences, {.n_heads = model_.n_heads,
                                           .n_kv_heads = model_.n_kv_heads,
                                           .d_head = model_.d_head,
                                           .rows = hopper_tile_rows(head_, longest_)});
  tile_count_ = static_cast<int>(tiles.size());
  tiles_.upload(tiles, "the order of attention's tiles", stream_);
  counter_.reserve(sizeof(int), "attention's counter");
}

void HopperAttention::attend(const AttentionArguments& a) {
  check(launch_hopper_attention({.q = a.q,
                                 .k = a.k,
                                 .v = a.v,
                                 .z = a.z,
                                 .lse = a.row_stats.lse,
                                 .largest = a.row_stats.largest,
                                 .rows = rows_,
                                 .q_stride = a.row_stride,
                                 .kv_stride = a.k_stride,
                                 .z_stride = a.z_stride,
                                 .n_heads = static_cast<int>(model_.n_heads),
                                 .n_kv_heads = static_cast<int>(model_.n_kv_heads),
                                 .d_head = static_cast<int>(head_.d_head),
                                 .d_value = static_cast<int>(head_.d_value),
                                 .bf16 = dtype_ == DType::bf16,
                                 .scale = a.scale,
                                 .softcap = static_cast<float>(model_.attention_softcap),
                                 .longest = longest_,
                                 .window = a.window >= longest_ ? 0 : static_cast<int>(a.window),
                                 .tiles = tiles_.as<AttentionTile>(),
                                 .tile_count = tile_count_,
                                 .counter = counter_.as<int>(),
                                 .multiprocessors = multiprocessors_},
                                stream_),
        "attention");
}

}  // namespace qkscope::cuda
