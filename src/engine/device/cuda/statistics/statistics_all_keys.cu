// All-keys attention statistics on the GPU, in a second pass over all scores.
#include <algorithm>

#include "engine/device/cuda/statistics/all_keys.cuh"

namespace qkscope::cuda {
namespace {

bool is_large(DType dtype, std::int64_t d_head) {
  using Shape = LargeShape<__half, 128>;
  return dtype != DType::f32 && d_head <= 128 &&
         shared_memory_limit() >= kScoreBytes<__half, Shape, AllKeysScan<__half, Shape>>;
}

void launch_large(const ScoreArguments& a, const AllKeysArguments& options, cudaStream_t stream) {
  dispatch_16bit_type(a.dtype, [&](auto type) {
    using T = decltype(type);
    dispatch_width<64, 128>(a.d_head, [&](auto width) {
      using Shape = LargeShape<T, width>;
      launch_score_pass<T, Shape, AllKeysScan<T, Shape>>(a, options, stream);
    });
  });
}

}  // namespace

std::int64_t all_keys_tile_rows(DType dtype, std::int64_t d_head) {
  return is_large(dtype, d_head) ? LargeShape<__half, 128>::kRows : SmallShape<__half, 128>::kRows;
}

std::int64_t all_keys_histogram_bytes() {
  return kAllKeysLaunchBlocks * LargeShape<__half, 128>::kRows * kBins *
         static_cast<std::int64_t>(sizeof(MassBin));
}

void compute_all_key_statistics(const ScoreArguments& arguments, const AllKeysArguments& more,
                                cudaStream_t stream) {
  const auto step = std::max<std::int64_t>(1, kAllKeysLaunchBlocks / arguments.tile_heads);
  auto part = arguments;
  for (std::int64_t tile = 0; tile < arguments.tile_count; tile += step) {
    part.tiles = arguments.tiles + tile;
    part.tile_count = std::min(step, arguments.tile_count - tile);
    if (compute_all_key_statistics_on_hopper(part, more, stream)) continue;
    if (is_large(part.dtype, part.d_head))
      launch_large(part, more, stream);
    else
      dispatch_score_pass<SmallShape, AllKeysScan>(part, more, stream);
  }
}

}  // namespace qkscope::cuda
