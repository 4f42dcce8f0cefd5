// The gate of the MLP: out = activation(gate) * up.
#pragma once

#include "qkscope/model.h"
#include "qkscope/tensor.h"

namespace qkscope {

// gate, up and out (rows, n), float32, contiguous; out may be gate or up.
void gated_activation(Activation activation, ConstTensorView gate, ConstTensorView up,
                      TensorView out);

}  // namespace qkscope
