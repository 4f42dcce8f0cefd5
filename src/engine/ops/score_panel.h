// Online softmax of attention, one block of keys at a time, for a panel of queries side by side.
#pragma once

#include <cstdint>

namespace qkscope {

// Scores of one block of keys for `columns` queries, the column count of the gemm.h tile. A column
// is one query of one head. Key indices count from the start of the block: column c sees keys
// [first[c], end[c]), and every column sees [all_first, all_end).
struct ScorePanel {
  float* scores;  // (keys, columns) scores; replaced by weights
  std::int64_t keys;
  std::int64_t columns;
  const float* first;  // (columns)
  const float* end;    // (columns)
  std::int64_t all_first;
  std::int64_t all_end;
  float* highest;  // (columns) running maximum; -infinity before the first visible key
  float* sum;      // (columns) running sum of exp(score - highest)
  float* z;        // (z_rows, columns) running weighted sum of values
  std::int64_t z_rows;
  std::int64_t used = columns;  // columns that are needed; whole vectors beyond may stay unchanged
};

// Replaces scores by exp(score - highest), 0 for masked keys, updates highest and sum, and rescales
// z. The sum of a block uses 16 lanes, key k in lane k % 16, added in one fixed order.
void update_softmax(const ScorePanel& panel);

}  // namespace qkscope
