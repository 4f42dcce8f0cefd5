// Causal attention with FlashInfer's kernel for Hopper (warp-specialised, with TMA and wgmma).
// hopper_kernel_absent.cpp stands in for it in a build without FlashInfer's headers.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

namespace qkscope::cuda {

struct AttentionTile;

struct HopperArguments {
  const void* q = nullptr;   // (rows, n_heads, d_head)
  const void* k = nullptr;   // (rows, n_kv_heads, d_head)
  const void* v = nullptr;   // (rows, n_kv_heads, d_head)
  void* z = nullptr;         // (rows, n_heads, d_head)
  float* lse = nullptr;      // (rows, n_heads): log2 of the sum of exponentials; null: not wanted
  float* largest = nullptr;  // (rows, n_heads): the largest q.k of each row; null: not wanted
  std::int64_t rows = 0;
  std::int64_t q_stride = 0;   // elements from a row of q to the next
  std::int64_t kv_stride = 0;  // of k, and of v
  std::int64_t z_stride = 0;
  int n_heads = 0;
  int n_kv_heads = 0;
  int d_head = 0;
  bool bf16 = true;  // else float16
  float scale = 1;
  int window = 0;                        // keys a query sees, itself included; 0: all before it
  const AttentionTile* tiles = nullptr;  // on the device, in the order of attention_tiles()
  int tile_count = 0;
  int* counter = nullptr;  // on the device: scratch
  int multiprocessors = 0;
};

// Rows of queries in a tile; 0 in a build without the kernel. It is there for heads of 128 and 256.
int hopper_tile_rows();

cudaError_t hopper_attention(const HopperArguments& arguments, cudaStream_t stream);

}  // namespace qkscope::cuda
