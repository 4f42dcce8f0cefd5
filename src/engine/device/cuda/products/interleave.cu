#include "engine/device/cuda/cuda_error.h"
#include "engine/device/cuda/products/gated_product.h"

namespace qkscope::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kGroup = 64;  // rows of gate and up in one interleaved group

// One block per row; gated_kernel.cu explains the order.
__global__ void interleave_kernel(const uint4* from, uint4* to, std::int64_t n, int packs) {
  const std::int64_t row = blockIdx.x;
  const int place = static_cast<int>(row % kGroup);
  const int neighbour = place % 8 / 2 * 8 + place / 8;
  const std::int64_t source = row / kGroup * (kGroup / 2) + neighbour + (place % 2 == 0 ? 0 : n);
  for (int i = static_cast<int>(threadIdx.x); i < packs; i += kThreads)
    to[row * packs + i] = from[source * packs + i];
}

}  // namespace

void interleave_gate_up(const void* from, void* to, std::int64_t n, std::int64_t in,
                        cudaStream_t stream) {
  const auto packs = static_cast<int>(in * 2 / static_cast<std::int64_t>(sizeof(uint4)));
  interleave_kernel<<<static_cast<unsigned>(2 * n), kThreads, 0, stream>>>(
      static_cast<const uint4*>(from), static_cast<uint4*>(to), n, packs);
  check_launch("order the MLP's weights");
}

}  // namespace qkscope::cuda
