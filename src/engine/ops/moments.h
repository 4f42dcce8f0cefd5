// Moments of all rows of q, k or v of one document (group A), float64 around the mean of each chunk
// of at most 256 rows. The GPU has the same in device/cuda.
#pragma once

#include <optional>

#include "engine/ops/sequence.h"
#include "engine/statistics/moments.h"
#include "qkscope/tensor.h"

namespace qkscope {

struct DocumentMoments {
  LayerMoments moments;
  std::optional<std::int64_t> bad_head;  // the first that holds NaN or infinity
};

// x (rows of the batch, heads, dim), of which the sequence's rows are one document. The bits depend
// on these rows alone.
DocumentMoments document_moments(ConstTensorView x, const Sequence& sequence,
                                 const MomentRequest& request);

}  // namespace qkscope
