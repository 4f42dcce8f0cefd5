// C function for our Hopper attention on PyTorch tensors, so that transformers_peer.py can run
// transformers with the same kernel.
#include <map>
#include <tuple>

#include "engine/device/cuda/attention/attention.h"
#include "engine/device/cuda/cuda_devices.h"
#include "engine/device/cuda/hopper_kernels.h"
#include "engine/device/cuda/memory/device_memory.h"

namespace qkscope::cuda {
namespace {

struct Tiles {
  DeviceMemory memory;
  DeviceMemory counter;
  int count = 0;
};

// Returns the tile order of a batch, cached because all layers share it.
const Tiles* tiles_of(std::int64_t documents, std::int64_t length, const AttentionTiling& shape) {
  static std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t>, Tiles> kept;
  auto& tiles = kept[{documents, length, shape.n_heads, shape.n_kv_heads}];
  if (tiles.count > 0) return &tiles;
  std::vector<Sequence> sequences;
  for (std::int64_t i = 0; i < documents; ++i) sequences.push_back({i * length, length});
  const auto order = schedule_attention_tiles(sequences, shape);
  const auto bytes = order.size() * sizeof(AttentionTile);
  check(cudaMemcpy(tiles.memory.reserve(static_cast<std::int64_t>(bytes), "tiles"), order.data(),
                   bytes, cudaMemcpyHostToDevice),
        "copy tiles");
  tiles.counter.reserve(sizeof(int), "a counter");
  tiles.count = static_cast<int>(order.size());
  return &tiles;
}

}  // namespace
}  // namespace qkscope::cuda

// q and z (documents, length, n_heads, 128), k and v (documents, length, n_kv_heads, 128), bfloat16
// and dense, causal. Returns a cudaError_t.
extern "C" __attribute__((visibility("default"))) int qkscope_attention(
    const void* q, const void* k, const void* v, void* z, int documents, int length, int n_heads,
    int n_kv_heads, float scale, cudaStream_t stream) {
  using namespace qkscope::cuda;
  constexpr int kHead = 128;
  const auto* tiles =
      tiles_of(documents, length,
               {.n_heads = n_heads,
                .n_kv_heads = n_kv_heads,
                .d_head = kHead,
                .rows = hopper_tile_rows({.d_head = kHead, .d_value = kHead}, length)});
  return launch_hopper_attention({.q = q,
                                  .k = k,
                                  .v = v,
                                  .z = z,
                                  .rows = std::int64_t{documents} * length,
                                  .q_stride = std::int64_t{n_heads} * kHead,
                                  .kv_stride = std::int64_t{n_kv_heads} * kHead,
                                  .z_stride = std::int64_t{n_heads} * kHead,
                                  .n_heads = n_heads,
                                  .n_kv_heads = n_kv_heads,
                                  .d_head = kHead,
                                  .d_value = kHead,
                                  .scale = scale,
                                  .longest = length,
                                  .tiles = tiles->memory.as<AttentionTile>(),
                                  .tile_count = tiles->count,
                                  .counter = tiles->counter.as<int>(),
                                  .multiprocessors = multiprocessor_count(0)},
                                 stream);
}
