// Moments of all rows of q, k or v of one document (group A), in float64 around the mean of chunks
// of at most 256 rows. The CUDA counterpart is in device/cuda/statistics.
#pragma once

#include <optional>

#include "engine/ops/sequence.h"
#include "engine/statistics/moments.h"
#include "qkscope/tensor.h"

namespace qkscope {

// Moments of one document.
struct DocumentMoments {
  LayerMoments moments;
  std::optional<std::int64_t> bad_head;  // first head with NaN or infinity, if any
};

// Moments of the rows of one sequence, which alone decide the bits. x: (rows, heads, dim).
DocumentMoments document_moments(ConstTensorView x, const Sequence& sequence,
                                 const MomentRequest& request);

}  // namespace qkscope
