#include "qkscope/tensor.h"

#include <algorithm>
#include <new>

#include <fmt/ranges.h>

#include "base/core/error.h"

namespace qkscope {

namespace {
constexpr std::align_val_t kAlignment{64};
}

Shape::Shape(std::initializer_list<std::int64_t> sizes)
    : Shape(std::span(sizes.begin(), sizes.size())) {}

Shape::Shape(std::span<const std::int64_t> sizes) : rank_(static_cast<int>(sizes.size())) {
  QKSCOPE_ASSERT(sizes.size() <= kMaxRank);
  std::copy(sizes.begin(), sizes.end(), sizes_.begin());
}

std::int64_t Shape::count() const {
  std::int64_t product = 1;
  for (int i = 0; i < rank_; ++i) product *= (*this)[i];
  return product;
}

Shape Shape::dense_strides() const {
  Shape strides = *this;
  std::int64_t stride = 1;
  for (int i = rank_ - 1; i >= 0; --i) {
    strides[i] = stride;
    stride *= (*this)[i];
  }
  return strides;
}

bool Shape::operator==(const Shape& other) const {
  return rank_ == other.rank_ &&
         std::equal(sizes_.begin(), sizes_.begin() + rank_, other.sizes_.begin());
}

std::string Shape::to_string() const {
  return fmt::format("[{}]", fmt::join(sizes_.begin(), sizes_.begin() + rank_, ", "));
}

void detail::wrong_type(DType found, DType asked) {
  failure("tensor: its elements are {}, asked for as {}", dtype_name(found), dtype_name(asked));
}

void detail::wrong_rows(std::int64_t begin, std::int64_t end, const Shape& shape) {
  failure("tensor of shape {}: there are no rows [{}, {})", shape.to_string(), begin, end);
}

void detail::wrong_shape(const Shape& found, const Shape& asked) {
  failure("tensor of shape {}: cannot be seen as {}; expected as many elements, lying densely",
          found.to_string(), asked.to_string());
}

Tensor::Tensor(const Shape& shape, DType dtype) : dtype_(dtype), shape_(shape) {
  const auto bytes = static_cast<std::size_t>(shape.count()) * dtype_size(dtype);
  // At least one byte, so that an empty tensor still has an address.
  bytes_.reset(static_cast<std::byte*>(
      ::operator new[](std::max<std::size_t>(bytes, 1), kAlignment, std::nothrow)));
  if (bytes_ == nullptr)
    failure("out of memory: a {} tensor of shape {} needs {:.2f} GiB", dtype_name(dtype),
            shape.to_string(), static_cast<double>(bytes) / (1u << 30));
}

void Tensor::Free::operator()(std::byte* bytes) const {
  ::operator delete[](bytes, kAlignment);
}

}  // namespace qkscope
