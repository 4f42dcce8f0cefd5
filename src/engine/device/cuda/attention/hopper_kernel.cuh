// FlashInfer's attention template with a custom tile scheduler.
#pragma once

#include <algorithm>
#include <type_traits>

#include <flashinfer/attention/hopper/prefill_sm90.cuh>
#include <flashinfer/attention/hopper/variants.cuh>

#include "engine/device/cuda/hopper_kernels.h"

namespace qkscope::cuda {

// Scale and soft cap of attention scores. FlashInfer's kernel reads the member sm_scale by name.
struct ScoreScaling {
  float sm_scale;
  float softcap;  // 0: none
};

// FlashInfer's online softmax, extended to return the maximum score of each row.
template <int kRows>
struct HopperSoftmax : flashinfer::OnlineSoftmax<kRows, /*WITH_SCALE=*/true> {
  using Base = flashinfer::OnlineSoftmax<kRows, true>;
  // Masked scores get this finite value instead of -infinity: exp() of it is 0 for every scale, and
  // a row that is fully masked within a tile does not compute infinity - infinity = NaN.
  static constexpr float fill_value = -1e7f;
  CUTLASS_DEVICE explicit HopperSoftmax(float scale) : Base(scale) {}
  struct RowSums {
    typename Base::TensorT lse, largest;
  };
  CUTLASS_DEVICE RowSums get_lse() const { return {this->row_sum, this->row_max}; }
};

struct PlainAttentionVariant : flashinfer::StandardAttention {
  template <typename Mainloop, typename Coordinates>
  CUTLASS_DEVICE PlainAttentionVariant(const Mainloop& mainloop, const Coordinates& at)
      : flashinfer::StandardAttention(mainloop, at) {}
  template <int kRows>
  CUTLASS_DEVICE auto GetAttentionUpdater() {
    return HopperSoftmax<kRows>(sm_scale_log2);
  }
};

// Soft cap: softcap tanh(scale score / softcap) / scale; the caller multiplies by `scale` later.
// tanh(u) = 1 - 2 / (exp(2u) + 1) has an error of 1e-7 of the cap; FlashInfer's formula has 5e-4.
struct SoftCappedAttentionVariant {
  float scale_log2, inner, outer;

  template <typename Mainloop, typename Coordinates>
  CUTLASS_DEVICE SoftCappedAttentionVariant(const Mainloop& mainloop, const Coordinates&) {
    const auto& [scale, softcap] = mainloop.additional_params;
    scale_log2 = scale * flashinfer::math::log2e;
    inner = 2.0f * scale_log2 / softcap;
    outer = softcap / scale;
  }
  template <int kRows>
  CUTLASS_DEVICE auto GetAttentionUpdater() {
    return HopperSoftmax<kRows>(scale_log2);
  }
  REGISTER_LOGITS_TRANSFORM(params, score, batch, query, key, head, key_head, {
    return outer - 2.0f * outer * flashinfer::math::ptx_rcp(exp2f(score * inner) + 1.0f);
  })
};

// FlashInfer's epilogue with two changes: it can store each row's log-sum-exp and maximum, and the
// barrier between writes to and reads from shared memory counts every thread once. FlashInfer's own
// barrier counts each thread twice, so one warpgroup can pass it alone (a race).
template <typename Traits>
struct AttentionEpilogue : flashinfer::CollectiveEpilogue<Traits> {
  using Base = flashinfer::CollectiveEpilogue<Traits>;
  struct Params : Base::Params {
    float* largest;  // (rows, n_heads), like lse_ptr; both or neither are null
    int n_heads;
  };

  template <typename Z, typename RowSums, typename Storage, typename Mma, typename Coordinates>
  CUTLASS_DEVICE void store(const Params& params, const Z& z, const RowSums& sums, Storage& storage,
                            Mma mma, int thread, const Coordinates& at) {
    const auto [tile, head, kv_head, begin, key_begin, length, key_length, batch] = at;
    auto rows =
        cute::make_tensor(cute::make_smem_ptr(storage.smem_o.data()), typename Base::SmemLayoutO{});
    const auto copy = cute::make_tiled_copy_C(typename Base::SmemCopyAtomO{}, mma);
    const auto of_thread = copy.get_thread_slice(thread);
    const auto rounded = flashinfer::convert_type<typename Base::DTypeO>(z);
    auto to = of_thread.partition_D(rows);
    // Waits until all warps have read the values, because z reuses the shared memory of the values.
    cutlass::arch::NamedBarrier::sync(
        Base::NUM_MMA_THREADS, static_cast<std::uint32_t>(flashinfer::NamedBarriers::kValueEmpty));
    cute::copy(copy, of_thread.retile_S(rounded), to);
    cutlass::arch::fence_view_async_shared();  // before the next values are loaded into the same
                                               // memory
    cutlass::arch::NamedBarrier::sync(Base::NUM_MMA_THREADS,
                                      cutlass::arch::ReservedNamedBarriers::EpilogueBarrier);
    flashinfer::write_O<Base::NUM_COPY_THREADS>(
        params.O_ptr, typename Base::TiledCopyO{}, params.layout_O,
        cute::select<0, 1>(typename Base::TileShape_PDV{}), rows, thread, tile, head, begin, length,
        Base::NUM_WARPS - 1);
    if (params.lse_ptr == nullptr || thread % 4 != 0) return;
    // A warpgroup has 64 rows, a warp 16; a lane holds rows lane / 4 and lane / 4 + 8.
    const int first = tile * Base::CTA_Q + thread / 32 * 16 + thread % 32 / 4;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = first + 8 * i;
      if (row >= length) continue;
      const auto place = static_cast<std::int64_t>(begin + row) * params.n_heads + head;
      params.lse_ptr[place] = sums.lse(i);
      params.largest[place] = sums.largest(i);
    }
  }
};

// Dynamic tile scheduler: blocks take tiles from a shared queue in order and fetch the next one
// while computing. FlashInfer calls these functions by name, from producer and consumer warps.
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
    // Returns the work of this block for FlashInfer: (tile, query head, key head, first query row,
    // first key row, query count, key count, batch index).
    CUTLASS_DEVICE auto get_block_coord(const Params& params) const {
      return cute::tuple{tile.z, tile.w, int(params.group.divide(tile.w)), tile.x, tile.x, tile.y,
                         tile.y, 0};
    }
  };

  // Offset of the next tile's index in shared memory, after the memory of FlashInfer's kernel.
  static constexpr int kNextAt = (sizeof(typename Traits::SharedStorage) + 15) / 16 * 16;
  static constexpr int kSharedBytes = kNextAt + 16;
  static constexpr int kThreads =
      Traits::NUM_MMA_THREADS + 32;  // consumer threads and one producer warp
  // Named barriers that are free because FlashInfer's kernel uses them only with paged keys.
  static constexpr std::uint32_t kEmpty = 5;
  static constexpr std::uint32_t kFull = 7;

  CUTLASS_DEVICE static int& next_tile_index() {
    extern __shared__ char shared_memory[];
    return *reinterpret_cast<int*>(shared_memory + kNextAt);
  }
  CUTLASS_DEVICE static WorkTileInfo tile_at(const Params& params, int index) {
    return {index, index < params.count ? __ldg(params.tiles + index) : int4{}};
  }

  CUTLASS_DEVICE WorkTileInfo get_initial_work(const Params& params) const {
    return tile_at(params, blockIdx.x);
  }
  CUTLASS_DEVICE void init_consumer() const {
    cutlass::arch::NamedBarrier::arrive(kThreads, kEmpty);
  }
  CUTLASS_DEVICE void prefetch_next_work(const Params& params, WorkTileInfo& current) const {
    if (threadIdx.x % 32 == 0) current.index = atomicAdd(params.taken, 1) + int(gridDim.x);
  }
  CUTLASS_DEVICE void broadcast_next_work(WorkTileInfo& current) const {
    cutlass::arch::NamedBarrier::sync(kThreads, kEmpty);
    if (threadIdx.x % 32 == 0) next_tile_index() = current.index;
    cutlass::arch::NamedBarrier::arrive(kThreads, kFull);
  }
  template <bool is_producer = false>
  CUTLASS_DEVICE WorkTileInfo get_next_work(const Params& params,
                                            const WorkTileInfo& current) const {
    if constexpr (is_producer) {
      return tile_at(params, __shfl_sync(0xffffffff, current.index, 0));
    } else {
      cutlass::arch::NamedBarrier::sync(kThreads, kFull);
      const int index = next_tile_index();
      cutlass::arch::NamedBarrier::arrive(kThreads, kEmpty);
      return tile_at(params, index);
    }
  }
};

template <typename Traits, bool kWindow>
cudaError_t launch_flash_infer(const HopperAttentionArguments& a, cudaStream_t stream) {
  using Element = typename Traits::DTypeQ;
  using Mainloop = flashinfer::CollectiveMainloop<ScoreScaling, Traits, /*CAUSAL=*/true>;
  using Epilogue = AttentionEpilogue<Traits>;
  using Queue = TileQueue<Traits>;
  const auto layout = [&](int heads, int width, std::int64_t stride) {
    return flashinfer::get_gmem_layout(static_cast<int>(a.rows), heads, width, stride,
                                       static_cast<std::int64_t>(width));
  };
  const auto mainloop = Mainloop::to_underlying_arguments(
      {static_cast<const Element*>(a.q), layout(a.n_heads, Traits::HEAD_DIM_QK, a.q_stride),
       static_cast<const Element*>(a.k), layout(a.n_kv_heads, Traits::HEAD_DIM_QK, a.kv_stride),
       static_cast<const Element*>(a.v), layout(a.n_kv_heads, Traits::HEAD_DIM_VO, a.kv_stride),
       a.window - 1, ScoreScaling{a.scale, a.softcap}});
  const typename Epilogue::Params epilogue{
      Epilogue::to_underlying_arguments(
          {static_cast<Element*>(a.z), layout(a.n_heads, Traits::HEAD_DIM_VO, a.z_stride), a.lse,
           flashinfer::get_lse_gmem_layout(static_cast<int>(a.rows), a.n_heads)}),
      a.largest, a.n_heads};
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

template <typename Variant, int kHead, int kValue, int kRows, int kKeys, typename Element>
cudaError_t launch_hopper_kernel(const HopperAttentionArguments& a, cudaStream_t stream) {
  using Traits = flashinfer::AttentionKernelTraits</*USE_TMA_LOAD_KV=*/true, kHead, kValue, kRows,
                                                   kKeys, /*NUM_STAGES=*/2, Element, Element,
                                                   Element, std::int32_t, Variant>;
  return a.window > 0 ? launch_flash_infer<Traits, true>(a, stream)
                      : launch_flash_infer<Traits, false>(a, stream);
}

template <bool kCapped, int kHead, int kRows, int kKeys, int kValue>
HopperKernelInstance hopper_kernel_instance() {
  using Variant = std::conditional_t<kCapped, SoftCappedAttentionVariant, PlainAttentionVariant>;
  return {
      {kHead, kValue, kCapped}, kRows, [](const HopperAttentionArguments& a, cudaStream_t stream) {
        return a.bf16 ? launch_hopper_kernel<Variant, kHead, kValue, kRows, kKeys,
                                             cutlass::bfloat16_t>(a, stream)
                      : launch_hopper_kernel<Variant, kHead, kValue, kRows, kKeys, cutlass::half_t>(
                            a, stream);
      }};
}

}  // namespace qkscope::cuda
