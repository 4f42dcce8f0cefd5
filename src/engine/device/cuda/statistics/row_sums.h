// Softmax statistics of each row of scores, a by-product of attention.
#pragma once

namespace qkscope::cuda {

// Each has shape (rows, n_heads) in device memory, or is null.
struct RowSums {
  float* lse = nullptr;      // log2 of the sum of the exponentials of the scaled scores
  float* largest = nullptr;  // largest q.k, unscaled
};

}  // namespace qkscope::cuda
