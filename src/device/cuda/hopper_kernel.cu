// FlashInfer's kernel is a template; what it works on next comes from a queue of ours.
#include <algorithm>

#include <flashinfer/attention/hopper/prefill_sm90.cuh>
#include <flashinfer/attention/hopper/variants.cuh>

#include "device/cuda/hopper_kernel.h"

namespace qkscope::cuda {
namespace {

constexpr int kTileRows = 128;

// FlashInfer's softmax reads these names.
struct Scores {
  float sm_scale;
};

// Tiles in their order: a block takes the next one while it computes, whichever block is first.
// FlashInfer calls the functions below by name, some from the warp that loads and some from those
// that compute.
template <typename Traits>
struct TileQueue {
  struct Params {
    const int4* tiles;  // AttentionTile
    int count;
    int* taken;
    cutlass::FastDivmod group;  // query heads per key head
  };

  struct WorkTileInfo {
    int index;
    int4 tile;

    CUTLASS_DEVICE bool is_valid(const Params& params) const { return index < params.count; }
    // Tile, query head, key head, first row of queries and of keys, their numbers, batch.
    CUTLASS_DEVICE auto get_block_coord(const Params& params) const {
      return cute::tuple{tile.z, tile.w, int(params.group.divide(tile.w)), tile.x, tile.x, tile.y,
                         tile.y, 0};
    }
  };

  // The index of the next tile lies behind the kernel's own shared memory.
  static constexpr int kNextAt = (sizeof(typename Traits::SharedStorage) + 15) / 16 * 16;
  static constexpr int kSharedBytes = kNextAt + 16;
  static constexpr int kThreads = Traits::NUM_MMA_THREADS + 32;  // those that compute, one warp
  // Barriers that the kernel uses with paged keys only.
  static constexpr std::uint32_t kEmpty = 5;
  static constexpr std::uint32_t kFull = 7;

  CUTLASS_DEVICE static int& next() {
    extern __shared__ char shared_memory[];
    return *reinterpret_cast<int*>(shared_memory + kNextAt);
  }
  CUTLASS_DEVICE static WorkTileInfo work(const Params& params, int index) {
    return {index, index < params.count ? __ldg(params.tiles + index) : int4{}};
  }

  CUTLASS_DEVICE WorkTileInfo get_initial_work(const Params& params) const {
    return work(params, blockIdx.x);
  }
  CUTLASS_DEVICE void init_consumer() const {
    cutlass::arch::NamedBarrier::arrive(kThreads, kEmpty);
  }
  CUTLASS_DEVICE void prefetch_next_work(const Params& params, WorkTileInfo& current) const {
    if (threadIdx.x % 32 == 0) current.index = atomicAdd(params.taken, 1) + int(gridDim.x);
  }
  CUTLASS_DEVICE void broadcast_next_work(WorkTileInfo& current) const {
    cutlass::arch::NamedBarrier::sync(kThreads, kEmpty);
    if (threadIdx.x % 32 == 0) next() = current.index;
    cutlass::arch::NamedBarrier::arrive(kThreads, kFull);
  }
  template <bool is_producer = false>
  CUTLASS_DEVICE WorkTileInfo get_next_work(const Params& params,
                                            const WorkTileInfo& current) const {
    if constexpr (is_producer) {
      return work(params, __shfl_sync(0xffffffff, current.index, 0));
    } else {
      cutlass::arch::NamedBarrier::sync(kThreads, kFull);
      const int index = next();
      cutlass::arch::NamedBarrier::arrive(kThreads, kEmpty);
      return work(params, index);
    }
  }
};

template <typename Traits, bool kWindow>
cudaError_t launch(const HopperArguments& a, cudaStream_t stream) {
  using Element = typename Traits::DTypeQ;
  using Mainloop = flashinfer::CollectiveMainloop<Scores, Traits, /*CAUSAL=*/true>;
  using Epilogue = flashinfer::CollectiveEpilogue<Traits>;
  using Queue = TileQueue<Traits>;
  const auto layout = [&](int heads, std::int64_t stride) {
    return flashinfer::get_gmem_layout(static_cast<int>(a.rows), heads, a.d_head, stride,
                                       static_cast<std::int64_t>(a.d_head));
  };
  const auto mainloop = Mainloop::to_underlying_arguments(
      {static_cast<const Element*>(a.q), layout(a.n_heads, a.q_stride),
       static_cast<const Element*>(a.k), layout(a.n_kv_heads, a.kv_stride),
       static_cast<const Element*>(a.v), layout(a.n_kv_heads, a.kv_stride), a.window - 1,
       Scores{a.scale}});
  const auto epilogue = Epilogue::to_underlying_arguments(
      {static_cast<Element*>(a.z), layout(a.n_heads, a.z_stride), a.lse,
       flashinfer::get_lse_gmem_layout(static_cast<int>(a.rows), a.n_heads)});
  const typename Queue::Params queue{reinterpret_cast<const int4*>(a.tiles), a.tile_count,
                                     a.counter, cutlass::FastDivmod(a.n_heads / a.n_kv_heads)};
  const auto kernel =
      flashinfer::PrefillWithKVCacheKernel<Mainloop, Epilogue, Traits, kWindow, true, Queue>;
  auto status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     Queue::kSharedBytes);
  if (status != cudaSuccess) return status;
  status = cudaMemsetAsync(a.counter, 0, sizeof(int), stream);
  if (status != cudaSuccess) return status;
  kernel<<<std::min(a.tile_count, a.multiprocessors), Traits::NUM_THREADS, Queue::kSharedBytes,
           stream>>>(mainloop, epilogue, queue);
  return cudaGetLastError();
}

template <typename Element, int d_head, int tile_keys>
cudaError_t launch_shape(const HopperArguments& a, cudaStream_t stream) {
  using Traits =
      flashinfer::AttentionKernelTraits</*USE_TMA_LOAD_KV=*/true, d_head, d_head, kTileRows,
                                        tile_keys, /*NUM_STAGES=*/2, Element, Element, Element,
                                        std::int32_t, flashinfer::StandardAttention>;
  return a.window > 0 ? launch<Traits, true>(a, stream) : launch<Traits, false>(a, stream);
}

// FlashInfer's own choice of tiles. Heads of 64 are not here: cuDNN is faster with them.
template <typename Element>
cudaError_t launch_type(const HopperArguments& a, cudaStream_t stream) {
  switch (a.d_head) {
    case 128:
      return launch_shape<Element, 128, 128>(a, stream);
    case 256:
      return launch_shape<Element, 256, 64>(a, stream);
    default:
      return cudaErrorNotSupported;
  }
}

}  // namespace

int hopper_tile_rows(std::int64_t d_head) {
  return d_head == 128 || d_head == 256 ? kTileRows : 0;
}

cudaError_t hopper_attention(const HopperArguments& arguments, cudaStream_t stream) {
  return arguments.bf16 ? launch_type<cutlass::bfloat16_t>(arguments, stream)
                        : launch_type<cutlass::half_t>(arguments, stream);
}

}  // namespace qkscope::cuda
