// Rows of the embedding matrix, widened and scaled.
#pragma once

#include <span>

#include "qkscope/model.h"
#include "qkscope/tensor.h"

namespace qkscope {

// y (ids, d_model) = table[ids] * scale
void embed(std::span<const std::int32_t> ids, const WeightMatrix& table, float scale, TensorView y);

}  // namespace qkscope
