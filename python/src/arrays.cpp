#include "arrays.h"

#include <memory>

#include "qkscope/error.h"

namespace qkscope::python {
namespace nb = nanobind;
namespace {

template <typename A>
A owning_array(Tensor tensor) {
  auto owned = std::make_unique<Tensor>(std::move(tensor));
  const nb::capsule owner(owned.get(),
                          [](void* memory) noexcept { delete static_cast<Tensor*>(memory); });
  Tensor& held = *owned.release();
  const auto sizes = sizes_of(held.shape());
  return {held.data<float>(), static_cast<std::size_t>(held.shape().rank()), sizes.data(), owner};
}

}  // namespace

std::array<std::size_t, Shape::kMaxRank> sizes_of(const Shape& shape) {
  std::array<std::size_t, Shape::kMaxRank> sizes{};
  for (int i = 0; i < shape.rank(); ++i)
    sizes[static_cast<std::size_t>(i)] = static_cast<std::size_t>(shape[i]);
  return sizes;
}

Array to_array(Tensor tensor) {
  return owning_array<Array>(std::move(tensor));
}

ReadOnlyArray to_read_only_array(Tensor tensor) {
  return owning_array<ReadOnlyArray>(std::move(tensor));
}

ReadOnlyArray view_of(ConstTensorView tensor, nb::handle owner) {
  if (!tensor.is_contiguous())
    throw Error(ErrorKind::failure, "weights do not lie densely in the file");
  const auto sizes = sizes_of(tensor.shape());
  return {tensor.data<float>(), static_cast<std::size_t>(tensor.rank()), sizes.data(), owner};
}

ReadOnlyArray view_of(std::span<const float> values, nb::handle owner) {
  const std::size_t size = values.size();
  return {values.data(), 1, &size, owner};
}

}  // namespace qkscope::python
