#include "qkscope/tensor.h"

#include <algorithm>
#include <array>
#include <new>

#include <fmt/ranges.h>

#include "base/core/convert.h"
#include "base/core/error.h"

namespace qkscope {

namespace {

constexpr std::align_val_t kAlignment{64};

struct DTypeInfo {
  DType dtype;
  std::size_t size;
  std::string_view name;
  std::string_view safetensors;
  std::string_view torch_storage;  // "" for types that PyTorch files never have
};

constexpr std::array kTypes = {
    DTypeInfo{DType::f32, 4, "float32", "F32", "torch.FloatStorage"},
    DTypeInfo{DType::f16, 2, "float16", "F16", "torch.HalfStorage"},
    DTypeInfo{DType::bf16, 2, "bfloat16", "BF16", "torch.BFloat16Storage"},
    DTypeInfo{DType::f8_e4m3, 1, "float8_e4m3", "F8_E4M3", ""},
    DTypeInfo{DType::f64, 8, "float64", "F64", "torch.DoubleStorage"},
    DTypeInfo{DType::i64, 8, "int64", "I64", "torch.LongStorage"},
    DTypeInfo{DType::i32, 4, "int32", "I32", "torch.IntStorage"},
    DTypeInfo{DType::i16, 2, "int16", "I16", "torch.ShortStorage"},
    DTypeInfo{DType::i8, 1, "int8", "I8", "torch.CharStorage"},
    DTypeInfo{DType::u8, 1, "uint8", "U8", "torch.ByteStorage"},
    DTypeInfo{DType::boolean, 1, "bool", "BOOL", "torch.BoolStorage"},
};

const DTypeInfo& find_dtype_info(DType dtype) {
  for (const auto& type : kTypes)
    if (type.dtype == dtype) return type;
  assertion_failed("known dtype", __FILE__, __LINE__);
}

std::optional<DType> find_dtype(std::string_view DTypeInfo::*field, std::string_view name) {
  for (const auto& type : kTypes)
    if (type.*field == name && !name.empty()) return type.dtype;
  return std::nullopt;
}

}  // namespace

std::size_t dtype_size(DType dtype) {
  return find_dtype_info(dtype).size;
}
std::string_view dtype_name(DType dtype) {
  return find_dtype_info(dtype).name;
}
std::string_view safetensors_name(DType dtype) {
  return find_dtype_info(dtype).safetensors;
}
std::string_view torch_storage_name(DType dtype) {
  return find_dtype_info(dtype).torch_storage;
}

bool is_floating(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16 ||
         dtype == DType::f8_e4m3 || dtype == DType::f64;
}

std::optional<DType> dtype_from_safetensors(std::string_view name) {
  return find_dtype(&DTypeInfo::safetensors, name);
}
std::optional<DType> dtype_from_torch_storage(std::string_view name) {
  return find_dtype(&DTypeInfo::torch_storage, name);
}

std::optional<DType> find_compute_dtype(std::string_view name) {
  if (name == "float32" || name == "fp32") return DType::f32;
  if (name == "float16" || name == "fp16") return DType::f16;
  if (name == "bfloat16" || name == "bf16") return DType::bf16;
  return std::nullopt;
}

DType parse_compute_dtype(std::string_view name, std::string_view what) {
  const auto dtype = find_compute_dtype(name);
  if (!dtype) reject("{}: found '{}', expected float32, float16 or bfloat16", what, name);
  return *dtype;
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

void detail::throw_bad_element_type(DType found, DType asked) {
  throw_failure("tensor: its elements are {}, asked for as {}", dtype_name(found),
                dtype_name(asked));
}

void detail::throw_bad_row_range(std::int64_t begin, std::int64_t end, const Shape& shape) {
  throw_failure("tensor of shape {}: there are no rows [{}, {})", shape.to_string(), begin, end);
}

void detail::throw_bad_reshape(const Shape& found, const Shape& asked) {
  throw_failure(
      "tensor of shape {}: cannot be seen as {}; expected as many elements, lying densely",
      found.to_string(), asked.to_string());
}

Tensor::Tensor(const Shape& shape, DType dtype) : dtype_(dtype), shape_(shape) {
  const auto bytes = static_cast<std::size_t>(shape.count()) * dtype_size(dtype);
  // Allocate at least one byte, so that an empty tensor has a non-null address.
  bytes_.reset(static_cast<std::byte*>(
      ::operator new[](std::max<std::size_t>(bytes, 1), kAlignment, std::nothrow)));
  if (bytes_ == nullptr)
    throw_failure("out of memory: a {} tensor of shape {} needs {:.2f} GiB", dtype_name(dtype),
                  shape.to_string(), static_cast<double>(bytes) / (1u << 30));
}

void Tensor::Free::operator()(std::byte* bytes) const {
  ::operator delete[](bytes, kAlignment);
}

}  // namespace qkscope
