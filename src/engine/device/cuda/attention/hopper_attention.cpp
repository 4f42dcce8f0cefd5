#include <algorithm>

#include "engine/device/cuda/attention/library_attention.h"
#include "engine/device/cuda/cuda_devices.h"
#include "engine/device/cuda/hopper_kernels.h"

namespace qkscope::cuda {
namespace {

// Keys and values (16-bit) of this many bytes are scheduled together. On an H200 (50 MB of L2), 8
// MB was the fastest and smallest size tried, at every sequence length.
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

std::vector<AttentionTile> schedule_attention_tiles(std::span<const Sequence> sequences,
                                                    const TileShape& shape) {
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
  const AttentionProperties any_layer{.capability = compute_capability(device),
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
  check(hopper_attention({.q = a.q,
                          .k = a.k,
                          .v = a.v,
                          .z = a.z,
                          .lse = a.row_sums.lse,
                          .largest = a.row_sums.largest,
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
