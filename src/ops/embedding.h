// Rows of the embedding matrix, widened and scaled.
#pragma once

#include <span>

#include "core/tensor.h"
#include "model/weights.h"

namespace qkscope {

// y (ids, d_model) = table[ids] * scale
void embed(std::span<const std::int32_t> ids, const WeightMatrix& table, float scale, TensorView y);

}  // namespace qkscope
