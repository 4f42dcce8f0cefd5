// Buffer sizes of recurrent mixers (delta nets, Mamba 2) on CUDA, for memory plan and kernels.
#pragma once

#include <cstdint>

#include "qkscope/model.h"

namespace qkscope {

// Limits of CUDA recurrence kernels: head dimension of k (and delta-rule v), tokens per chunk.
constexpr std::int64_t kCudaWidestKeys = 256;
constexpr std::int64_t kCudaRecurrenceChunk = 64;
// Returns whether sequences of at least one chunk run on tensor cores. States and products of q and
// k of Mamba 2 are unbounded, which excludes float16.
inline bool runs_in_cuda_chunks(const MixerConfig& mixer, DType dtype) {
  const auto keys = mixer.d_key;
  const bool has_kernel = mixer.kind == Mixer::mamba2
                              ? dtype == DType::bf16 && (keys == 64 || keys == 128 || keys == 256)
                              : mixer.kind == Mixer::gated_delta && dtype != DType::f32 &&
                                    (keys == 64 || keys == 96 || keys == 128);
  return has_kernel && mixer.d_value % 64 == 0;
}
// Bytes per chunk and head: four 16-bit matrices, two in Mamba 2, and two float32 vectors.
inline std::int64_t cuda_chunk_matrix_bytes(const MixerConfig& mixer) {
  return (mixer.kind == Mixer::mamba2 ? 2 : 4) * 2 * kCudaRecurrenceChunk * kCudaRecurrenceChunk;
}
constexpr std::int64_t kCudaChunkFactorBytes = 2 * 4 * kCudaRecurrenceChunk;
// Returns the bytes of the two float32 states (before and after a pass) of a layer and sequence.
inline std::int64_t cuda_mixer_state_bytes(const MixerConfig& mixer) {
  return 2 * 4 * ((mixer.taps - 1) * mixer.channels() + mixer.value_width() * mixer.d_key);
}

}  // namespace qkscope
