// Sizes of gated delta nets on CUDA, for the memory plan and for kernels.
#pragma once

#include <cstdint>

#include "base/core/dtype.h"
#include "qkscope/model.h"

namespace qkscope {

// Widest head of keys or values, and tokens per chunk. Sequences of at
// least one chunk run on tensor cores, which need per chunk and head four 16-bit matrices and two
// float32 vectors.
constexpr std::int64_t kCudaWidestKeys = 256;
constexpr std::int64_t kCudaRecurrenceChunk = 64;
constexpr std::int64_t kCudaChunkMatrixBytes = 4 * 2 * kCudaRecurrenceChunk * kCudaRecurrenceChunk;
constexpr std::int64_t kCudaChunkFactorBytes = 2 * 4 * kCudaRecurrenceChunk;
inline bool runs_in_cuda_chunks(const MixerConfig& mixer, DType dtype) {
  return dtype != DType::f32 && (mixer.d_key == 64 || mixer.d_key == 96 || mixer.d_key == 128) &&
         mixer.d_value % 64 == 0;
}
// Returns the float32 bytes of the states of one layer and sequence before and after a pass.
inline std::int64_t cuda_mixer_state_bytes(const MixerConfig& mixer) {
  return 2 * 4 * ((mixer.taps - 1) * mixer.channels() + mixer.value_width() * mixer.d_key);
}

}  // namespace qkscope
