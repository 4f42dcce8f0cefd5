// Buffer sizes of gated delta nets on CUDA, shared by the memory plan and the kernels.
#pragma once

#include <cstdint>

#include "base/core/dtype.h"
#include "qkscope/model.h"

namespace qkscope {

// Maximum width of a key or value head, and tokens per chunk. Sequences of at least one chunk run
// on tensor cores and need four 16-bit matrices and two float32 vectors per chunk and head.
constexpr std::int64_t kCudaDeltaWidest = 256;
constexpr std::int64_t kCudaDeltaChunk = 64;
constexpr std::int64_t kCudaDeltaMatrixBytes = 4 * 2 * kCudaDeltaChunk * kCudaDeltaChunk;
constexpr std::int64_t kCudaDeltaFactorBytes = 2 * 4 * kCudaDeltaChunk;
inline bool has_cuda_delta_chunks(const MixerConfig& delta, DType dtype) {
  return dtype != DType::f32 && (delta.d_key == 64 || delta.d_key == 96 || delta.d_key == 128) &&
         delta.d_value % 64 == 0;
}
// Bytes of the float32 states of one layer and sequence: two copies, for before and after a pass.
inline std::int64_t cuda_delta_state_bytes(const MixerConfig& delta) {
  return 2 * 4 * ((delta.taps - 1) * delta.channels() + delta.value_width() * delta.d_key);
}

}  // namespace qkscope
