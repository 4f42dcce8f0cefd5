// Converts tensors of the engine to NumPy arrays without a copy.
#pragma once

#include <array>
#include <span>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "qkscope/tensor.h"

namespace qkscope::python {

using Array = nanobind::ndarray<nanobind::numpy, float>;
using ReadOnlyArray = nanobind::ndarray<nanobind::numpy, const float>;

// Converts a shape to sizes for nanobind; sizes beyond its rank are 0.
std::array<std::size_t, Shape::kMaxRank> sizes_of(const Shape& shape);

// Moves a tensor into an array, which then owns the memory.
Array to_array(Tensor tensor);
ReadOnlyArray to_read_only_array(Tensor tensor);

// Returns a NumPy view of float32 memory that `owner` keeps alive.
ReadOnlyArray view_of(ConstTensorView tensor, nanobind::handle owner);
ReadOnlyArray view_of(std::span<const float> values, nanobind::handle owner);

}  // namespace qkscope::python
