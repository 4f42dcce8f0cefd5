// What attention knows of a row of scores when it is done with it.
#pragma once

namespace qkscope::cuda {

// (rows, n_heads) each, in device memory, or null.
struct RowSums {
  float* lse = nullptr;      // log2 of the sum of the exponentials of the scaled scores
  float* largest = nullptr;  // the largest q.k, not scaled
};

}  // namespace qkscope::cuda
