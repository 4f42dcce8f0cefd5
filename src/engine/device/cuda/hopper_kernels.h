// Kernels for Hopper from templates of FlashInfer and CUTLASS; hopper_absent.cpp has the stubs for
// builds without their headers. This header is compiled as C++17.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

namespace qkscope::cuda {

struct AttentionTile;

// Causal attention with FlashInfer's kernel (warp-specialised, TMA and wgmma).
struct HopperAttentionArguments {
  const void* q = nullptr;   // (rows, n_heads, d_head)
  const void* k = nullptr;   // (rows, n_kv_heads, d_head)
  const void* v = nullptr;   // (rows, n_kv_heads, d_value)
  void* z = nullptr;         // (rows, n_heads, d_value)
  float* lse = nullptr;      // (rows, n_heads): log2 of the sum of exponentials; null: not stored
  float* largest = nullptr;  // (rows, n_heads): largest q.k of each row; null: not stored
  std::int64_t rows = 0;
  std::int64_t q_stride = 0;   // elements from a row of q to the next
  std::int64_t kv_stride = 0;  // elements from a row of k or v to the next
  std::int64_t z_stride = 0;
  int n_heads = 0;
  int n_kv_heads = 0;
  int d_head = 0;
  int d_value = 0;
  bool bf16 = true;  // else float16
  float scale = 1;
  float softcap = 0;         // soft cap: cap tanh(score / cap); 0: none
  std::int64_t longest = 0;  // rows of the longest sequence
  int window = 0;            // visible keys of a query, itself included; 0: all before it
  const AttentionTile* tiles = nullptr;  // on the device, as schedule_attention_tiles() orders them
  int tile_count = 0;
  int* counter = nullptr;  // scratch on the device
  int multiprocessors = 0;
};

// Properties of a head that select a kernel instance.
struct HopperHeadShape {
  std::int64_t d_head = 0;
  std::int64_t d_value = 0;
  bool softcap = false;
};

// Returns the query rows per tile for the given longest sequence, or 0 if this build has no kernel
// for the head shape. Results are bit-identical for every tile size.
int hopper_tile_rows(const HopperHeadShape& head, std::int64_t longest);

cudaError_t launch_hopper_attention(const HopperAttentionArguments& arguments, cudaStream_t stream);

struct HopperKernelInstance {
  HopperHeadShape head;
  int tile_rows = 0;  // query rows of a tile
  cudaError_t (*attend)(const HopperAttentionArguments&, cudaStream_t) = nullptr;
};

// Kernel for heads of kHead elements (kValue in v), in tiles of kRows queries and kKeys keys. Each
// head size has its own file (hopper_64.cu, ...), because an instance takes minutes to compile.
template <bool kCapped, int kHead, int kRows, int kKeys, int kValue = kHead>
HopperKernelInstance hopper_kernel_instance();

// Gate/up product with SwiGLU in the epilogue of a CUTLASS GEMM: the (rows, 2 d_mlp) intermediate
// is never written to memory. With groups (experts), each group of rows has its own weights, and
// one launch multiplies all groups; a group may be empty.
struct GatedGemmArguments {
  const void* x = nullptr;       // (rows, in)
  const void* weight = nullptr;  // (2 n, in) interleaved by interleave_gate_up()
  void* y = nullptr;             // (rows, n) silu(gate) * up, or (rows, 2 n) gate and up
  std::int64_t rows = 0;
  std::int64_t in = 0;
  std::int64_t n = 0;
  bool apart = false;  // write gate and up separately: for observers, or for a product without gate
  bool bf16 = true;    // else float16
  int device = 0;
  int multiprocessors = 0;  // number on the device

  int groups = 0;                       // at most kMostGroups; 0: all rows have the same weights
  const std::int32_t* begin = nullptr;  // (groups + 1) first row of each group, then `rows`
  const void* bias = nullptr;           // (2 n) of the first group, not interleaved; or null
  std::int64_t group_stride = 0;  // elements from weight and bias of a group to those of the next
  void* workspace = nullptr;      // kGroupWorkspace bytes on the device
};
constexpr int kMostGroups = 1024;
constexpr std::int64_t kGroupWorkspace = std::int64_t{1} << 20;

bool is_gated_gemm_built();
cudaError_t launch_gated_gemm(const GatedGemmArguments& arguments, cudaStream_t stream);

}  // namespace qkscope::cuda
