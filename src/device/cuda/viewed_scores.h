// Scores and patterns of chosen queries: computed on the card to be looked at, on the host to be
// edited.
#pragma once

#include <cstdint>
#include <span>

#include <cuda_runtime.h>

#include "device/backend.h"
#include "device/cuda/pass_rows.h"
#include "ops/attention.h"
#include "qkscope/tensor.h"

namespace qkscope::cuda {

struct ScoreSource {
  const void* q = nullptr;      // (rows, n_heads, d_head)
  const void* k = nullptr;      // (rows, n_kv_heads, d_head)
  std::int64_t row_stride = 0;  // elements from one row of q and k to the next
  std::int64_t n_heads = 0;
  std::int64_t n_kv_heads = 0;
  std::int64_t d_head = 0;
  float scale = 1.0f;
  std::int64_t window = 0;
  DType dtype = DType::bf16;
};

// Some rows at a time: the square is never on the card.
void view_scores(const RowScores& out, const ScoreSource& source, PassRows& rows,
                 cudaStream_t stream);

// q, k and v on the host, where scores that someone writes into are computed: a row that is left
// alone is then known by its bits.
struct EditedScores {
  Tensor q;  // (rows, n_heads, d_head)
  Tensor k;  // (rows, n_kv_heads, d_head)
  Tensor v;  // (rows, n_kv_heads, d_head)
  std::span<const Sequence> sequences;
  float scale = 1.0f;
  std::int64_t window = 0;

  void score_rows(const RowScores& out) const;
  void pattern_of_edited_scores(const RowScores& edited) const;
  void attend_edited_rows(const RowScores& edited, TensorView z) const;

 private:
  AttentionInput input() const;
};

}  // namespace qkscope::cuda
