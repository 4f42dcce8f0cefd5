// CUDA buffer sizes of recurrent mixers (delta nets, Mamba 2), for the memory plan and the kernels.
#pragma once

#include <cstdint>

#include "qkscope/model.h"

namespace qkscope {

// Limits of CUDA recurrence kernels: head dimension of k (and delta-rule v), tokens per chunk.
constexpr std::int64_t kCudaWidestKeys = 256;
constexpr std::int64_t kCudaRecurrenceChunk = 64;
// Returns whether sequences of at least one chunk run on tensor cores. Mamba 2 in float16 does not:
// its states and its products of q and k are unbounded and could overflow.
inline bool has_chunked_kernel(const MixerConfig& mixer, DType dtype) {
  const auto keys = mixer.d_key;
  const bool has_kernel = mixer.kind == Mixer::mamba2
                              ? dtype == DType::bf16 && (keys == 64 || keys == 128 || keys == 256)
                              : mixer.kind == Mixer::gated_delta && dtype != DType::f32 &&
                                    (keys == 64 || keys == 96 || keys == 128);
  return has_kernel && mixer.d_value % 64 == 0;
}
// Bytes per chunk and head: four 16-bit matrices (two for Mamba 2), then two float32 vectors.
inline std::int64_t cuda_recurrence_matrix_bytes(const MixerConfig& mixer) {
  return (mixer.kind == Mixer::mamba2 ? 2 : 4) * 2 * kCudaRecurrenceChunk * kCudaRecurrenceChunk;
}
constexpr std::int64_t kCudaChunkFactorBytes = 2 * 4 * kCudaRecurrenceChunk;
// Returns the bytes of the two float32 states (before and after a pass) of a layer and sequence.
inline std::int64_t cuda_mixer_state_bytes(const MixerConfig& mixer) {
  return 2 * 4 * ((mixer.taps - 1) * mixer.channels() + mixer.value_width() * mixer.d_key);
}

}  // namespace qkscope
