// Attention statistics over all keys of each query, in a second scan of all scores.
#include <algorithm>

#include "engine/device/cuda/statistics/all_keys.cuh"

namespace qkscope::cuda {
namespace {

bool uses_large_tiles(DType dtype, std::int64_t d_head) {
  using Shape = LargeTileShape<__half, 128>;
  return dtype != DType::f32 && d_head <= 128 &&
         max_shared_memory_bytes() >= kScoreBytes<__half, Shape, AllKeysPass<__half, Shape>>;
}

void launch_large_tiles(const ScoreArguments& a, const AllKeysArguments& more,
                        cudaStream_t stream) {
  dispatch_16bit_type(a.dtype, [&](auto type) {
    using T = decltype(type);
    dispatch_width<64, 128>(a.d_head, [&](auto width) {
      using Shape = LargeTileShape<T, width>;
      launch_score_pass<T, Shape, AllKeysPass<T, Shape>>(a, more, stream);
    });
  });
}

}  // namespace

std::int64_t all_keys_tile_rows(DType dtype, std::int64_t d_head) {
  return uses_large_tiles(dtype, d_head) ? LargeTileShape<__half, 128>::kRows
                                         : SmallTileShape<__half, 128>::kRows;
}

std::int64_t all_keys_histogram_bytes() {
  return kAllKeysLaunchBlocks * LargeTileShape<__half, 128>::kRows * kBins *
         static_cast<std::int64_t>(sizeof(HistogramBin));
}

void compute_all_key_statistics(const ScoreArguments& arguments, const AllKeysArguments& more,
                                cudaStream_t stream) {
  const auto step = std::max<std::int64_t>(1, kAllKeysLaunchBlocks / arguments.tile_heads);
  auto part = arguments;
  for (std::int64_t tile = 0; tile < arguments.tile_count; tile += step) {
    part.tiles = arguments.tiles + tile;
    part.tile_count = std::min(step, arguments.tile_count - tile);
    if (try_compute_all_key_statistics_on_hopper(part, more, stream)) continue;
    if (uses_large_tiles(part.dtype, part.d_head))
      launch_large_tiles(part, more, stream);
    else
      dispatch_score_pass<SmallTileShape, AllKeysPass>(part, more, stream);
  }
}

}  // namespace qkscope::cuda
