#include "core/convert.h"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/error.h"

namespace qkscope {
namespace {

// value = sign * 2^(exponent-7) * 1.mantissa, subnormals at 2^-6.
std::array<float, 256> e4m3_table() {
  std::array<float, 256> table{};
  for (int code = 0; code < 256; ++code) {
    const int exponent = (code >> 3) & 15;
    const int mantissa = code & 7;
    float value = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
    if ((code & 0x7f) == 0x7f) value = std::numeric_limits<float>::quiet_NaN();
    table[static_cast<std::size_t>(code)] = (code & 0x80) ? -value : value;
  }
  return table;
}

template <typename T>
void widen_from(const T* source, std::span<float> destination) {
  for (std::size_t i = 0; i < destination.size(); ++i) destination[i] = to_float(source[i]);
}

}  // namespace

float to_float(Fp16 value) {
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000u) << 16;
  const std::uint32_t magnitude = value.bits & 0x7fffu;
  if (magnitude >= 0x7c00u)  // infinity or NaN
    return std::bit_cast<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  // Shifting into place gives the value times 2^-112; the product rescales subnormals too.
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | sign);
}

Fp16 to_fp16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return {static_cast<std::uint16_t>(sign | 0x7e00u)};
  if (magnitude >= 0x477ff000u) return {static_cast<std::uint16_t>(sign | 0x7c00u)};
  if (magnitude < 0x38800000u) {  // below 2^-14: let the float unit round at the subnormal's grid
    const float rounded = std::bit_cast<float>(magnitude) + 0.5f;
    return {
        static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(rounded) - 0x3f000000u))};
  }
  const std::uint32_t rebased = magnitude - 0x38000000u;
  return {static_cast<std::uint16_t>(sign | (rebased + 0xfffu + ((rebased >> 13) & 1u)) >> 13)};
}

float to_float(Fp8E4m3 value) {
  static const auto table = e4m3_table();
  return table[value.bits];
}

void widen(ConstTensorView source, std::span<float> destination) {
  QKSCOPE_ASSERT(source.is_contiguous());
  QKSCOPE_ASSERT(static_cast<std::size_t>(source.size()) == destination.size());
  switch (source.dtype()) {
    case DType::f32:
      if (!destination.empty())
        std::memcpy(destination.data(), source.bytes(), destination.size_bytes());
      return;
    case DType::bf16:
      return widen_from(source.data<Bf16>(), destination);
    case DType::f16:
      return widen_from(source.data<Fp16>(), destination);
    case DType::f8_e4m3:
      return widen_from(source.data<Fp8E4m3>(), destination);
    case DType::f64: {
      const double* values = source.data<double>();
      for (std::size_t i = 0; i < destination.size(); ++i)
        destination[i] = static_cast<float>(values[i]);
      return;
    }
    default:
      failure("cannot widen {} to float32: only floating types can be widened",
              dtype_name(source.dtype()));
  }
}

Tensor to_float32(ConstTensorView source) {
  Tensor result(source.shape(), DType::f32);
  widen(source, {result.data<float>(), static_cast<std::size_t>(result.size())});
  return result;
}

}  // namespace qkscope
