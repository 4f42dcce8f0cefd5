#include <algorithm>
#include <atomic>

#include "base/core/clock.h"
#include "base/core/thread_pool.h"
#include "engine/ops/gemm.h"

namespace qkscope::gemm {
namespace {

constexpr std::int64_t kDepth = 128;  // both sides of a tile fit into the L1 cache
constexpr int kTilesPerCheck = 1000;  // tiles between two clock reads

// Returns the number of tiles that one thread computes until `end`.
std::int64_t tiles_until(Clock::time_point end) {
  const auto tile = tile_shape();
  Workspace memory;
  float* left = memory.floats((tile.rows + tile.columns) * kDepth + tile.rows * tile.columns);
  float* right = left + tile.rows * kDepth;
  float* out = right + tile.columns * kDepth;
  std::fill_n(left, (tile.rows + tile.columns) * kDepth, 0.5f);
  std::int64_t count = 0;
  for (; Clock::now() < end; count += kTilesPerCheck)
    for (int i = 0; i < kTilesPerCheck; ++i)
      multiply({left, right, tile.rows, tile.columns, kDepth}, false, out, tile.columns);
  return count;
}

}  // namespace

double tile_rate(double seconds) {
  const auto start = Clock::now();
  const auto end =
      start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  std::atomic<std::int64_t> tiles = 0;
  parallel_for(thread_count(), [&](std::int64_t) { tiles += tiles_until(end); });
  const auto tile = tile_shape();
  const auto flop = 2.0 * static_cast<double>(tile.rows * tile.columns * kDepth);
  return static_cast<double>(tiles) * flop / seconds_since(start);
}

}  // namespace qkscope::gemm
