#include "engine/device/cuda/attention/hopper_attention.h"

#include <algorithm>

#include "engine/device/cuda/attention/attention_choice.h"
#include "engine/device/cuda/attention/attention_tiles.h"
#include "engine/device/cuda/attention/hopper_kernel.h"
#include "engine/device/cuda/cuda_devices.h"
#include "engine/device/cuda/cuda_error.h"

namespace qkscope::cuda {

HopperAttention::HopperAttention(const ModelConfig& model, DType dtype, int device,
                                 cudaStream_t stream)
    : model_(model), dtype_(dtype), stream_(stream), multiprocessors_(multiprocessors(device)) {
  const bool softcap = model.attention_softcap > 0.0;
  const AttentionCase any_layer{.capability = capability(device),
                                .dtype = dtype,
                                .d_head = model.d_head,
                                .softcap = softcap,
                                .sinks = model.has_sinks()};
  const AttentionLibraries has{.flash_infer = hopper_tile_rows(model.d_head, softcap, 0) > 0};
  serves_ = choose_attention(any_layer, has) == AttentionKernel::flash_infer;
}

void HopperAttention::begin(std::span<const Sequence> sequences) {
  rows_ = 0;
  longest_ = 0;
  for (const auto& sequence : sequences) {
    rows_ = std::max(rows_, sequence.begin + sequence.length);
    longest_ = std::max(longest_, sequence.length);
  }
  const auto tiles = attention_tiles(
      sequences,
      {.n_heads = model_.n_heads,
       .n_kv_heads = model_.n_kv_heads,
       .d_head = model_.d_head,
       .rows = hopper_tile_rows(model_.d_head, model_.attention_softcap > 0.0, longest_)});
  tile_count_ = static_cast<int>(tiles.size());
  tiles_.upload(std::span(tiles), "the order of attention's tiles", stream_);
  counter_.reserve(sizeof(int), "attention's counter");
}

void HopperAttention::attend(const FusedAttentionArguments& a, const RowSums& row_sums) {
  const auto width = (model_.n_heads + 2 * model_.n_kv_heads) * model_.d_head;
  check(hopper_attention({.q = a.q,
                          .k = a.k,
                          .v = a.v,
                          .z = a.z,
                          .lse = row_sums.lse,
                          .largest = row_sums.largest,
                          .rows = rows_,
                          .q_stride = width,
                          .kv_stride = width,
                          .z_stride = model_.n_heads * model_.d_head,
                          .n_heads = static_cast<int>(model_.n_heads),
                          .n_kv_heads = static_cast<int>(model_.n_kv_heads),
                          .d_head = static_cast<int>(model_.d_head),
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
