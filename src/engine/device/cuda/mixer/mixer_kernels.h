// CUDA kernels of the mixers that keep a state: gated delta nets, Kimi Delta Attention, Mamba 2 and
// short convolutions (MixerConfig in qkscope/model.h has the formulas). Rows are those of a batch;
// a sequence starts from a zero state or from the state of a cache.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include "qkscope/model.h"

namespace qkscope::cuda {

// Returns the shared memory, in bytes, that run_recurrence_in_chunks() needs per block.
constexpr std::size_t recurrence_shared_bytes(std::int64_t d_key) {
  return static_cast<std::size_t>(d_key > 128 ? 188 : 160) << 10;
}

struct MixerSequence {
  std::int32_t begin;        // first row
  std::int32_t length;       // rows
  std::int32_t past_row;     // row of inputs and states before the pass; -1: zeros
  std::int32_t next_row;     // row of inputs and states after the pass; -1: not kept
  std::int32_t first_chunk;  // index of its first chunk in MixerArguments::chunks; -1: none
};

struct RecurrenceChunk {
  std::int32_t begin;  // first row
  std::int32_t rows;   // up to kCudaRecurrenceChunk
};

struct MixerVectorWeights {
  const float* convolution = nullptr;       // (taps, channels)
  const float* convolution_bias = nullptr;  // (channels) or null
  const float* a_log = nullptr;             // (value_heads)
  const float* dt_bias = nullptr;           // (value_heads) or (value_heads, d_key)
  const float* skip = nullptr;              // (value_heads): D of Mamba 2; else null
  const float* norm = nullptr;              // (d_value), or (value_width) of Mamba 2; or null
};

struct MixerArguments {
  MixerConfig config;
  std::int64_t key_width = config.key_width();
  std::int64_t value_width = config.value_width();
  std::int64_t channels = config.channels();
  bool has_delta_rule = config.has_delta_rule();
  DType dtype = DType::bf16;
  std::int64_t rows = 0;
  const void* projected = nullptr;  // (rows, stride): q, k, v, z, b, a if present
  std::int64_t stride = 0;          // elements
  // Low-rank z and a of Kimi Delta Attention, which `projected` does not contain.
  const void* low_rank_z = nullptr;  // (rows, value_width)
  const void* low_rank_a = nullptr;  // (rows, value_heads, d_key)
  MixerVectorWeights vectors = {};

  const MixerSequence* sequences = nullptr;  // (sequence_count)
  std::int64_t sequence_count = 0;
  const std::int32_t* row_sequences = nullptr;  // (rows)
  const RecurrenceChunk* chunks = nullptr;      // (chunk_count)
  std::int64_t chunk_count = 0;
  bool has_short_sequences = false;  // some sequence runs token by token

  // Not in a short convolution:
  void* qkv = nullptr;              // (rows, channels) convolved
  float* rates = nullptr;           // (rows, value_heads)
  float* log_decays = nullptr;      // (rows, value_heads); not in Kimi Delta Attention
  float* channel_decays = nullptr;  // (rows, value_heads, d_key) of Kimi Delta Attention; else null
  void* matrices = nullptr;  // (chunks, value_heads, 4 or 2, chunk, chunk), see run_recurrence()
  float* factors = nullptr;  // (chunks, value_heads, 2, chunk), see run_recurrence()

  void* output = nullptr;  // (rows, value_heads, d_value)

  float* inputs = nullptr;  // (any, taps - 1, channels) last inputs of the convolution
  float* states = nullptr;  // (any, value_heads, d_key, d_value); not in a short convolution

  const std::int32_t* state_rows = nullptr;  // (state_row_count) ascending
  std::int64_t state_row_count = 0;
  float* row_states = nullptr;  // MixerConfig::state_shape(state_row_count)
};

// Convolves `projected` into `qkv`, scales q and k to unit length for the delta rule, and computes
// rates and decays. For Mixer::short_convolution, only writes `output` and `row_states`.
void convolve_inputs(const MixerArguments& arguments, cudaStream_t stream);

// The recurrence: writes `output`, states after the pass and `row_states`. Sequences with chunks
// run on tensor cores: one kernel computes, for all chunks at once,
//   matrices: T = (I + A)^-1 diag(b) and P, where for tokens i and j of the chunk
//     A_ij = b_i e^(c_i - c_j) k_i.k_j if j < i and P_ij = e^(c_i - c_j) q_i.k_j if j <= i, with
//     rates b and cumulated log decays c; both as sums of two 16-bit matrices: high T, low T,
//     high P, low P
//   factors: e^(c_i) and e^(c_last - c_i)
// and a second kernel walks the chunks of a sequence with the state S in registers:
//   w = T (v - e^c K S),  output = e^c Q S + P w,  S = e^(c_last) S + Kᵀ (e^(c_last - c) w).
// In Mamba 2 there is no T, w = v, and the rates are in P, whose column j is multiplied by b_j, and
// in the second factor. FlashInfer (0.6) has a kernel of the delta rule, which needs d_key =
// d_value = 128, has one block per sequence and head, and inverts in float16.
void run_recurrence(const MixerArguments& arguments, cudaStream_t stream);
// Chunked path of run_recurrence(), for sequences that are long enough to be split into chunks.
void run_recurrence_in_chunks(const MixerArguments& arguments, cudaStream_t stream);

// Applies RMSNorm to `output` and multiplies it by silu(z), in place. Gated delta net: per head,
// norm first. Kimi Delta Attention: the same with sigmoid(z). Mamba 2: per group of heads, in the
// order given by MixerConfig::gate_before_norm.
void normalize_and_gate_output(const MixerArguments& arguments, cudaStream_t stream);

}  // namespace qkscope::cuda
