// Sizes of gated delta nets on CUDA, for the memory plan and for kernels.
#pragma once

#include <cstdint>

#include "base/core/dtype.h"
#include "qkscope/model.h"

namespace qkscope {

// Widest head of keys or values, and tokens per chunk. Sequences of at
// least one chunk run on tensor cores, which need per chunk and head four 16-bit matrices and two
// float32 vectors.
constexpr std::int64_t kCudaDeltaWidest = 256;
constexpr std::int64_t kCudaDeltaChunk = 64;
constexpr std::int64_t kCudaDeltaMatrixBytes = 4 * 2 * kCudaDeltaChunk * kCudaDeltaChunk;
constexpr std::int64_t kCudaDeltaFactorBytes = 2 * 4 * kCudaDeltaChunk;
inline bool has_cuda_delta_chunks(const MixerConfig& delta, DType dtype) {
  return dtype != DType::f32 && (delta.d_key == 64 || delta.d_key == 96 || delta.d_key == 128) &&
         delta.d_value % 64 == 0;
}
// Returns the float32 bytes of the states of one layer and sequence before and after a pass.
inline std::int64_t cuda_delta_state_bytes(const MixerConfig& delta) {
  return 2 * 4 * ((delta.taps - 1) * delta.channels() + delta.value_width() * delta.d_key);
}

}  // namespace qkscope
