// Queries, keys and blockwise scores of one head and document, for attention statistics.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "base/core/numbers.h"
#include "engine/ops/attention.h"
#include "engine/ops/gemm.h"
#include "engine/ops/key_kernels.h"
#include "engine/ops/row_kernels.h"

namespace qkscope {

// Inputs of one query head of one document.
struct HeadInput {
  const AttentionInput* input;
  const rows::RunningSoftmax* row_sums;  // row sums of position 0; positions are n_heads apart
  const std::int32_t* ids;               // token id of position 0
  Sequence sequence;
  std::int64_t head;

  std::int64_t heads() const { return input->q.dim(1); }
  std::int64_t key_head() const { return head / (heads() / input->k.dim(1)); }
  std::int64_t d() const { return input->q.dim(2); }
  std::int64_t query_stride() const { return heads() * d(); }
  std::int64_t key_stride() const { return input->k.dim(1) * d(); }
  const float* query(std::int64_t position) const {
    return input->q.data<float>() + (sequence.begin + position) * query_stride() + head * d();
  }
  const float* key(std::int64_t position) const {
    return input->k.data<float>() + (sequence.begin + position) * key_stride() + key_head() * d();
  }
  std::int64_t first_key(std::int64_t position) const {
    return first_visible_key(position, input->window);
  }
  double max_logit(std::int64_t position) const { return row_sums[position * heads()].highest; }
  double lse(std::int64_t position) const {
    const auto& sums = row_sums[position * heads()];
    return static_cast<double>(sums.highest) + std::log(static_cast<double>(sums.sum));
  }
};

// Scores of a block of queries and a range of keys.
struct ScoreBlock {
  std::vector<float> values;  // (queries, keys)
  std::int64_t keys = 0;

  const float* row(std::int64_t query) const { return values.data() + query * keys; }
};

// A block of consecutive queries, packed for products with keys. Scores have the bits of
// attention(): scaled queries, one chain of fused multiply-adds each.
class QueryTile {
 public:
  void load(const HeadInput& in, std::int64_t begin, std::int64_t count) {
    d_ = in.d();
    queries_ = count;
    softcap_ = in.input->softcap;
    packed_.resize(as_index(gemm::round_up(count, gemm::tile_shape().rows) * d_));
    gemm::pack_left({in.query(begin), in.query_stride(), count, d_}, packed_.data());
    rows::scale(packed_.data(), static_cast<std::int64_t>(packed_.size()), in.input->scale);
  }

  // Computes the scores of `count` keys; key j is at keys + j * stride.
  void multiply(const float* keys, std::int64_t stride, std::int64_t count, ScoreBlock& scores) {
    scores.keys = count;
    scores.values.resize(as_index(queries_ * count));
    packed_keys_.resize(as_index(gemm::round_up(count, gemm::tile_shape().columns) * d_));
    gemm::pack_right({keys, stride, count, d_}, packed_keys_.data());
    gemm::multiply({packed_.data(), packed_keys_.data(), queries_, count, d_}, false,
                   scores.values.data(), count);
    if (softcap_ > 0.0f) rows::soft_cap(scores.values.data(), std::ssize(scores.values), softcap_);
  }

 private:
  std::int64_t d_ = 0;
  std::int64_t queries_ = 0;
  float softcap_ = 0.0f;
  std::vector<float> packed_;
  std::vector<float> packed_keys_;
};

}  // namespace qkscope
