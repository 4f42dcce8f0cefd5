// The softmax of attention, block of keys by block of keys, for a panel of queries side by side.
#pragma once

#include <cstdint>

namespace qkscope {

// A block of keys for `columns` queries, as many as the tile of gemm.h has columns; a query and
// head is a column. [first, end) are the keys that a column sees, counted from the first of the
// block; all columns see those of [all_first, all_end).
struct ScorePanel {
  float* scores;  // (keys, columns): scores, then weights
  std::int64_t keys;
  std::int64_t columns;
  const float* first;  // (columns)
  const float* end;    // (columns)
  std::int64_t all_first;
  std::int64_t all_end;
  float* highest;  // (columns) the highest score so far; -infinity where there was none
  float* sum;      // (columns) of exp(score - highest) so far
  float* z;        // (z_rows, columns) what was summed with these weights so far
  std::int64_t z_rows;
  std::int64_t used = columns;  // those that count: whole vectors of others may stay as they are
};

// Turns scores into exp(score - highest), 0 for keys that a column does not see, takes them into
// highest and sum, and brings z to the new highest score. The sum of a block runs in 16 lanes,
// key k in lane k % 16, that are folded in one order.
void weigh(const ScorePanel& panel);

}  // namespace qkscope
