// Group C of one head and document: what needs the scores of all keys, in one more pass over them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/ops/head_scores.h"
#include "engine/ops/mass_bins.h"
#include "engine/ops/replaced_keys.h"
#include "engine/statistics/attention_sums.h"

namespace qkscope {

// What the heads that read one key head share.
struct KeyHead {
  std::vector<ReplacedKeys> replaced;    // one per replacement
  std::vector<std::vector<float>> kept;  // one per set of kept keys: 1 or 0 for each key; empty
                                         // where the rule needs none
};

class AllKeys {
 public:
  // All must outlive it. key_sums: of the document's first key, n_heads apart.
  AllKeys(const HeadInput& in, const AttentionRequest& request, const KeyHead& keys,
          std::int64_t* key_sums)
      : in_(in), request_(request), layout_(request.layout), keys_(keys), key_sums_(key_sums) {}

  // The columns of group C of the queries [begin, end), which `queries` holds; values: (queries,
  // columns), group C still 0.
  void add(QueryTile& queries, std::int64_t begin, std::int64_t end, double* values);

 private:
  static constexpr std::int64_t kRows = 4;    // that are counted into bins side by side
  static constexpr std::int64_t kKeys = 256;  // at once

  // The sums of one replacement of keys at a row.
  struct Divergence {
    double difference = 0;  // sum p (s - s')
    double highest = 0;     // of s'
    double sum = 0;         // of exp(s' - highest); 0: no key yet
  };
  struct Keys {  // [begin, end) of those at hand
    std::int64_t begin;
    std::int64_t end;
  };

  void add_keys(Keys block, double* values);
  void add_row(std::int64_t i, std::int64_t slot, Keys block, double* v);
  void compare_row(std::int64_t i, const float* p, Keys block, Keys seen);
  void keep_row(std::int64_t i, const float* p, Keys block, Keys seen, double* v) const;
  void count(std::int64_t query, std::int64_t width);
  void finish(std::int64_t i, double* v) const;

  const HeadInput& in_;
  const AttentionRequest& request_;
  const ColumnLayout& layout_;
  const KeyHead& keys_;
  std::int64_t* key_sums_;
  Keys queries_ = {0, 0};  // of the block
  ScoreBlock scores_;
  std::vector<ScoreBlock> replaced_scores_;
  std::vector<MassBins> bins_;           // (queries, filled up to whole kRows)
  std::vector<Divergence> divergences_;  // (queries, replacements)
  std::int64_t block_sums_[kKeys] = {};  // of the block's keys
  // Of kRows queries at a time; what is no key of a row has weight 0 and a bin of its own.
  float p_[kRows][kKeys] = {};
  std::int32_t bin_[kRows][kKeys] = {};
  std::int64_t units_[kRows][kKeys] = {};
};

}  // namespace qkscope
