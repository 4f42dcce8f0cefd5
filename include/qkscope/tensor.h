// Tensors: Tensor owns its memory (move-only); TensorView and ConstTensorView are non-owning.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "qkscope/version.h"

namespace qkscope {

enum class DType : std::uint8_t { f32, f16, bf16, f8_e4m3, f64, i64, i32, i16, i8, u8, boolean };

QKSCOPE_API std::size_t dtype_size(DType dtype);       // bytes per element
QKSCOPE_API std::string_view dtype_name(DType dtype);  // PyTorch's name: "bfloat16"
QKSCOPE_API bool is_floating(DType dtype);
// Parses float32, fp32, float16, fp16, bfloat16 or bf16. Throws a bad-input error that begins with
// `what` (the name of the option) for any other text.
QKSCOPE_API DType parse_compute_dtype(std::string_view name, std::string_view what);

// Raw bits of the 16-bit and 8-bit floating types; to_float32() converts whole tensors.
struct Bf16 {
  std::uint16_t bits;
};
struct Fp16 {
  std::uint16_t bits;
};
struct Fp8E4m3 {
  std::uint8_t bits;
};

template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct DTypeOf<Bf16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct DTypeOf<Fp16> {
  static constexpr DType value = DType::f16;
};
template <>
struct DTypeOf<Fp8E4m3> {
  static constexpr DType value = DType::f8_e4m3;
};
template <>
struct DTypeOf<std::int64_t> {
  static constexpr DType value = DType::i64;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::i32;
};

struct Device {
  enum class Kind : std::uint8_t { cpu, cuda };
  Kind kind = Kind::cpu;
  int index = 0;

  bool operator==(const Device&) const = default;
};

// Sizes or strides of up to four dimensions, without heap allocation.
class QKSCOPE_API Shape {
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

namespace detail {
[[noreturn]] QKSCOPE_API void throw_bad_element_type(DType found, DType asked);
[[noreturn]] QKSCOPE_API void throw_bad_row_range(std::int64_t begin, std::int64_t end,
                                                  const Shape& shape);
[[noreturn]] QKSCOPE_API void throw_bad_reshape(const Shape& found, const Shape& asked);
}  // namespace detail

// A non-owning strided view; the memory must outlive the view. Byte is std::byte or const
// std::byte.
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

  // Converts a mutable view to a read-only view.
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
    if (dtype_ != DTypeOf<T>::value) detail::throw_bad_element_type(dtype_, DTypeOf<T>::value);
    return reinterpret_cast<Element<T>*>(bytes_);
  }

  // Returns the view of rows [begin, end) of the first dimension. Throws an Error of kind failure
  // if out of range.
  BasicTensorView rows(std::int64_t begin, std::int64_t end) const {
    if (rank() == 0 || begin < 0 || begin > end || end > dim(0))
      detail::throw_bad_row_range(begin, end, shape_);
    Shape shape = shape_;
    shape[0] = end - begin;
    return {bytes_ + begin * stride(0) * static_cast<std::int64_t>(dtype_size(dtype_)), dtype_,
            shape, strides_, device_};
  }

  // Returns a view of the same elements with another shape. The view must be contiguous.
  BasicTensorView reshaped(const Shape& shape) const {
    if (!is_contiguous() || shape.count() != size()) detail::throw_bad_reshape(shape_, shape);
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

// Owns contiguous, 64-byte aligned, uninitialised host memory.
class QKSCOPE_API Tensor {
 public:
  Tensor() = default;
  explicit Tensor(const Shape& shape, DType dtype = DType::f32);

  TensorView view() { return {bytes_.get(), dtype_, shape_}; }
  ConstTensorView view() const { return {bytes_.get(), dtype_, shape_}; }
  operator TensorView() { return view(); }             // NOLINT(google-explicit-constructor)
  operator ConstTensorView() const { return view(); }  // NOLINT(google-explicit-constructor)

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  std::int64_t dim(int i) const { return shape_[i]; }
  std::int64_t size() const { return shape_.count(); }
  bool empty() const { return bytes_ == nullptr; }

  template <typename T>
  T* data() {
    return view().template data<T>();
  }
  template <typename T>
  const T* data() const {
    return view().template data<T>();
  }

 private:
  struct QKSCOPE_API Free {
    void operator()(std::byte* bytes) const;
  };
  std::unique_ptr<std::byte[], Free> bytes_;
  DType dtype_ = DType::f32;
  Shape shape_;
};

// Returns a contiguous float32 copy of a tensor of any floating type.
QKSCOPE_API Tensor to_float32(ConstTensorView source);

}  // namespace qkscope
