// Two tensor types: Tensor owns its memory (move-only), TensorView and ConstTensorView borrow.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <type_traits>

#include "core/dtype.h"
#include "core/error.h"

namespace qkscope {

struct Device {
  enum class Kind : std::uint8_t { cpu, cuda };
  Kind kind = Kind::cpu;
  int index = 0;

  bool operator==(const Device&) const = default;
};

// Sizes (or strides) of up to four dimensions, held in place.
class Shape {
 public:
  static constexpr int kMaxRank = 4;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> sizes);
  explicit Shape(std::span<const std::int64_t> sizes);

  int rank() const { return rank_; }
  std::int64_t operator[](int i) const { return sizes_[static_cast<std::size_t>(i)]; }
  std::int64_t& operator[](int i) { return sizes_[static_cast<std::size_t>(i)]; }
  std::int64_t count() const;   // product of the sizes
  Shape dense_strides() const;  // row-major, in elements
  bool operator==(const Shape& other) const;
  std::string to_string() const;  // "[4, 16]"

 private:
  int rank_ = 0;
  std::array<std::int64_t, kMaxRank> sizes_{};
};

// Borrows memory that something else keeps alive. Byte is std::byte or const std::byte.
template <typename Byte>
class BasicTensorView {
 public:
  template <typename T>
  using Element = std::conditional_t<std::is_const_v<Byte>, const T, T>;

  BasicTensorView() = default;
  BasicTensorView(Byte* bytes, DType dtype, const Shape& shape, Device device = {})
      : BasicTensorView(bytes, dtype, shape, shape.dense_strides(), device) {}
  BasicTensorView(Byte* bytes, DType dtype, const Shape& shape, const Shape& strides, Device device)
      : bytes_(bytes), dtype_(dtype), device_(device), shape_(shape), strides_(strides) {}

  // A mutable view can be read.
  template <typename Other>
  requires(std::is_const_v<Byte>&& std::is_same_v<Other, std::byte>)
      BasicTensorView(const BasicTensorView<Other>& other)  // NOLINT(google-explicit-constructor)
      : BasicTensorView(other.bytes(), other.dtype(), other.shape(), other.strides(),
                        other.device()) {}

  Byte* bytes() const { return bytes_; }
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  const Shape& shape() const { return shape_; }
  const Shape& strides() const { return strides_; }  // in elements
  int rank() const { return shape_.rank(); }
  std::int64_t dim(int i) const { return shape_[i]; }
  std::int64_t stride(int i) const { return strides_[i]; }
  std::int64_t size() const { return shape_.count(); }
  std::size_t size_bytes() const { return static_cast<std::size_t>(size()) * dtype_size(dtype_); }
  bool empty() const { return bytes_ == nullptr; }
  bool is_contiguous() const { return strides_ == shape_.dense_strides(); }

  template <typename T>
  Element<T>* data() const {
    QKSCOPE_ASSERT(dtype_ == DTypeOf<T>::value);
    return reinterpret_cast<Element<T>*>(bytes_);
  }

  // Rows [begin, end) of the first dimension.
  BasicTensorView rows(std::int64_t begin, std::int64_t end) const {
    QKSCOPE_ASSERT(rank() > 0 && 0 <= begin && begin <= end && end <= dim(0));
    Shape shape = shape_;
    shape[0] = end - begin;
    return {bytes_ + begin * stride(0) * static_cast<std::int64_t>(dtype_size(dtype_)), dtype_,
            shape, strides_, device_};
  }

  // The same elements under another shape; contiguous views only.
  BasicTensorView reshaped(const Shape& shape) const {
    QKSCOPE_ASSERT(is_contiguous() && shape.count() == size());
    return {bytes_, dtype_, shape, device_};
  }

 private:
  Byte* bytes_ = nullptr;
  DType dtype_ = DType::f32;
  Device device_;
  Shape shape_;
  Shape strides_;
};

using TensorView = BasicTensorView<std::byte>;
using ConstTensorView = BasicTensorView<const std::byte>;

// Owns 64-byte aligned host memory, contiguous, not initialised.
class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(const Shape& shape, DType dtype = DType::f32);

  TensorView view() const { return {bytes_.get(), dtype_, shape_}; }
  operator TensorView() const { return view(); }       // NOLINT(google-explicit-constructor)
  operator ConstTensorView() const { return view(); }  // NOLINT(google-explicit-constructor)

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  std::int64_t dim(int i) const { return shape_[i]; }
  std::int64_t size() const { return shape_.count(); }
  bool empty() const { return bytes_ == nullptr; }

  template <typename T>
  T* data() const {
    return view().template data<T>();
  }

 private:
  struct Free {
    void operator()(std::byte* bytes) const;
  };
  std::unique_ptr<std::byte[], Free> bytes_;
  DType dtype_ = DType::f32;
  Shape shape_;
};

}  // namespace qkscope
