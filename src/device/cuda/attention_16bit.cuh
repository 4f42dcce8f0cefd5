// Attention in bfloat16 and float16 on the matrix units; one block takes a run of queries of one
// head through the keys they see.
#pragma once

#include "device/cuda/attention_block.cuh"
#include "device/cuda/attention_fragments.cuh"

namespace qkscope::cuda {

// 32 queries per warp let each fragment of k and v serve two products; heads of 256 leave registers
// for 16. With these sizes two blocks run on a multiprocessor (sm_80, sm_90), and one copies or
// exponentiates while the other multiplies.
template <int kHeadWidth>
struct AttentionShape {
  static constexpr int kWidth = kHeadWidth;  // d_head, padded
  static constexpr int kWarps = 4;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kBands = kWidth <= 128 ? 2 : 1;
  static constexpr int kWarpRows = kBands * 16;
  static constexpr int kRows = kWarps * kWarpRows;  // queries of a block
  static constexpr int kKeys = kWidth <= 128 ? 64 : 32;
  static constexpr int kTileBytes = kKeys * kPitch<kWidth>;
  static constexpr int kQueryBytes = kRows * kPitch<kWidth>;
  static constexpr int kSharedBytes =
      kQueryBytes + 2 * kTileBytes + static_cast<int>(sizeof(KeyRanges<kRows>));
};

// How much of a tile the queries of a warp see: nothing, all of it each, or anything between.
enum class Sight { nothing, part, all };

template <typename Shape>
__device__ __forceinline__ Sight sight_of(KeyTile tile, const KeyRanges<Shape::kRows>& ranges,
                                          int row) {
  const int query = row + static_cast<int>(threadIdx.x) % Shape::kWarpRows;
  const auto first = ranges.first[query], last = ranges.last[query];
  if (!__any_sync(kAllLanes, first < tile.end && last >= tile.begin)) return Sight::nothing;
  // A short tile has rows of zeros that nobody sees.
  const auto end = tile.begin + Shape::kKeys;
  const bool all = first <= tile.begin && last >= end - 1 && tile.end == end;
  return __all_sync(kAllLanes, all) ? Sight::all : Sight::part;
}

template <bool kVectors>
__device__ HeadRows<const std::uint16_t, kVectors> source_rows(const void* data,
                                                               std::int64_t stride,
                                                               std::int64_t head, int d_head) {
  return {static_cast<const std::uint16_t*>(data) + head * d_head, stride, d_head};
}

template <typename T, typename Shape, bool kVectors>
__global__ void __launch_bounds__(Shape::kThreads, 2)
    attention_16bit_kernel(const AttentionArguments a, float scale) {
  constexpr int kWidth = Shape::kWidth, kBands = Shape::kBands, kKeys = Shape::kKeys;
  extern __shared__ __align__(16) char shared[];
  char* const q_tile = shared;
  char* const k_tile = q_tile + Shape::kQueryBytes;
  char* const v_tile = k_tile + Shape::kTileBytes;
  auto& ranges = *reinterpret_cast<KeyRanges<Shape::kRows>*>(v_tile + Shape::kTileBytes);

  const auto block = this_block<Shape::kRows>(a);
  const auto d_head = static_cast<int>(a.d_head);
  const auto k_rows = source_rows<kVectors>(a.k, a.k_stride, block.kv_head, d_head);
  const auto v_rows = source_rows<kVectors>(a.v, a.v_stride, block.kv_head, d_head);
  const auto load_keys = [&](char* target, const auto& rows, KeyTile tile) {
    load_rows<kKeys, kWidth, Shape::kThreads>(target, rows, tile.begin, tile.end - tile.begin);
  };
  load_rows<Shape::kRows, kWidth, Shape::kThreads>(
      q_tile, source_rows<kVectors>(a.q, a.q_stride, block.head, d_head), block.query,
      block.queries);
  load_key_ranges(ranges, a, block.query);

  const int row = static_cast<int>(threadIdx.x) / 32 * Shape::kWarpRows;  // the warp's first
  char* const q_warp = q_tile + row * kPitch<kWidth>;
  const auto address = [](char* tile, int offset) {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(tile)) + offset;
  };
  const auto q_lane = address(q_warp, lane_offset<kWidth>());
  const auto k_lane = address(k_tile, lane_offset_of_keys<kWidth>());
  const auto v_lane = address(v_tile, lane_offset<kWidth>());

  Fragments<kBands, kWidth> values = {};
  RunningSoftmax<kBands> softmax;
#pragma unroll
  for (int i = 0; i < 2 * kBands; ++i) {
    softmax.maximum[i / 2][i % 2] = -INFINITY;
    softmax.sum[i / 2][i % 2] = 0.0f;
  }
  const KeyTileWalk<Shape::kRows, kKeys> walk(ranges);
  auto tile = walk.next(0);
  load_keys(k_tile, k_rows, tile);
  while (tile.exists()) {
    Fragments<kBands, kKeys> scores;
    const auto sight = sight_of<Shape>(tile, ranges, row);
    wait_for_copies();
    __syncthreads();  // k is there, and every warp is done with the v before
    load_keys(v_tile, v_rows, tile);
    if (sight != Sight::nothing) multiply_keys<T, kWidth, kBands, kKeys>(scores, q_lane, k_lane);
    const auto next = walk.next(tile.end);
    wait_for_copies();
    __syncthreads();  // v is there, and every warp is done with k
    if (next.exists()) load_keys(k_tile, k_rows, next);
    if (sight != Sight::nothing) {
      if (sight == Sight::part) mask<kBands, kKeys>(scores, ranges, row, tile);
      update_softmax<kWidth, kBands, kKeys>(scores, softmax, values, scale);
      add_values<T, kWidth, kBands, kKeys>(values, scores, v_lane);
    }
    tile = next;
  }

  __syncwarp();  // the warp's rows of q, which it alone read, now carry its z
  write_quotients<T, kWidth, kBands>(q_warp, softmax, values);
  __syncwarp();
  const HeadRows<std::uint16_t, kVectors> z_rows{
      static_cast<std::uint16_t*>(a.z) + block.head * d_head, a.z_stride, d_head};
  store_rows<Shape::kWarpRows, kWidth>(q_warp, z_rows, block.query + row, block.queries - row);
}

template <typename T, int kWidth>
void launch_attention(const AttentionArguments& a, cudaStream_t stream) {
  using Shape = AttentionShape<kWidth>;
  const auto whole = [](const void* data, std::int64_t stride) {
    return reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && stride % 8 == 0;
  };
  const bool vectors = whole(a.q, a.q_stride) && whole(a.k, a.k_stride) && whole(a.v, a.v_stride) &&
                       whole(a.z, a.z_stride) && a.d_head % 8 == 0;
  launch_blocks<Shape>(
      vectors ? attention_16bit_kernel<T, Shape, true> : attention_16bit_kernel<T, Shape, false>,
      Shape::kSharedBytes, a, stream);
}

template <typename T>
void attention_16bit(const AttentionArguments& a, cudaStream_t stream) {
  if (a.d_head <= 16) return launch_attention<T, 16>(a, stream);
  if (a.d_head <= 32) return launch_attention<T, 32>(a, stream);
  if (a.d_head <= 64) return launch_attention<T, 64>(a, stream);
  if (a.d_head <= 96) return launch_attention<T, 96>(a, stream);
  if (a.d_head <= 128) return launch_attention<T, 128>(a, stream);
  launch_attention<T, 256>(a, stream);
}

}  // namespace qkscope::cuda
