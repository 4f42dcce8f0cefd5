#include "base/core/convert.h"

#include <cstring>

#include "base/core/cpu_target.h"
#include "base/core/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "base/core/convert.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace qkscope::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using Bits = hn::ScalableTag<std::uint32_t>;
using BitVector = hn::Vec<Bits>;

// Rescales a narrow float after its exponent and mantissa were shifted to their float32 positions.
// The shifted bits are the value times a power of two; `factor` is the inverse of that power.
// Subnormal values scale correctly too.
HWY_INLINE BitVector scale_float_bits(BitVector magnitude, float factor) {
  const Floats floats;
  return hn::BitCast(Bits(), hn::Mul(hn::BitCast(floats, magnitude), hn::Set(floats, factor)));
}

HWY_INLINE BitVector float_bits_from_fp16(BitVector code) {
  const Bits d;
  const auto sign = hn::ShiftLeft<16>(hn::And(code, hn::Set(d, 0x8000u)));
  const auto magnitude = hn::ShiftLeft<13>(hn::And(code, hn::Set(d, 0x7fffu)));
  const auto infinity = hn::Set(d, 0x7f800000u);
  const auto special = hn::Gt(magnitude, hn::Set(d, 0x0f7fffffu));  // infinity or NaN
  const auto value =
      hn::IfThenElse(special, hn::Or(magnitude, infinity), scale_float_bits(magnitude, 0x1p112f));
  return hn::Or(value, sign);
}

HWY_INLINE BitVector float_bits_from_e4m3(BitVector code) {
  const Bits d;
  const auto sign = hn::ShiftLeft<24>(hn::And(code, hn::Set(d, 0x80u)));
  const auto magnitude = hn::And(code, hn::Set(d, 0x7fu));
  const auto is_nan = hn::Eq(magnitude, hn::Set(d, 0x7fu));
  const auto value = hn::IfThenElse(is_nan, hn::Set(d, 0x7fc00000u),
                                    scale_float_bits(hn::ShiftLeft<20>(magnitude), 0x1p120f));
  return hn::Or(value, sign);
}

template <typename Code, typename Function>
HWY_INLINE void convert_codes_to_float(const Code* source, std::size_t count, float* out,
                                       Function to_bits) {
  const Bits d;
  const hn::Rebind<Code, Bits> codes;
  const auto widen_vector = [&](const Code* from, float* to) HWY_ATTR {
    const auto bits = to_bits(hn::PromoteTo(d, hn::LoadU(codes, from)));
    hn::StoreU(hn::BitCast(Floats(), bits), Floats(), to);
  };
  constexpr std::size_t kLanes = hn::MaxLanes(Bits());
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) widen_vector(source + i, out + i);
  if (i == count) return;
  Code last[kLanes] = {};
  float widened[kLanes];
  std::memcpy(last, source + i, (count - i) * sizeof(Code));
  widen_vector(last, widened);
  std::memcpy(out + i, widened, (count - i) * sizeof(float));
}

// Converts bfloat16, float16 or FP8 E4M3 values to float32.
void to_float32_kernel(const std::byte* source, DType dtype, std::size_t count, float* out) {
  const auto* codes = reinterpret_cast<const std::uint16_t*>(source);
  if (dtype == DType::bf16)
    convert_codes_to_float(codes, count, out,
                           [](BitVector code) HWY_ATTR { return hn::ShiftLeft<16>(code); });
  else if (dtype == DType::f16)
    convert_codes_to_float(codes, count, out,
                           [](BitVector code) HWY_ATTR { return float_bits_from_fp16(code); });
  else
    convert_codes_to_float(reinterpret_cast<const std::uint8_t*>(source), count, out,
                           [](BitVector code) HWY_ATTR { return float_bits_from_e4m3(code); });
}

}  // namespace qkscope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkscope {

HWY_EXPORT(to_float32_kernel);

float to_float(Fp16 value) {
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000u) << 16;
  const std::uint32_t magnitude = value.bits & 0x7fffu;
  if (magnitude >= 0x7c00u)  // infinity or NaN
    return std::bit_cast<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  // The float16 bits shifted left by 13, read as float32, are the value times 2^-112. The product
  // is exact, even for subnormals.
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | sign);
}

Fp16 to_fp16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return {static_cast<std::uint16_t>(sign | 0x7e00u)};
  if (magnitude >= 0x477ff000u) return {static_cast<std::uint16_t>(sign | 0x7c00u)};
  if (magnitude < 0x38800000u) {  // fp16 subnormal: adding 0.5 rounds to a multiple of 2^-24
    const float rounded = std::bit_cast<float>(magnitude) + 0.5f;
    return {
        static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(rounded) - 0x3f000000u))};
  }
  const std::uint32_t rebased = magnitude - 0x38000000u;
  return {static_cast<std::uint16_t>(sign | (rebased + 0xfffu + ((rebased >> 13) & 1u)) >> 13)};
}

float to_float(Fp8E4m3 value) {
  const std::uint32_t magnitude = value.bits & 0x7fu;
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x80u) << 24;
  if (magnitude == 0x7fu) return std::bit_cast<float>(sign | 0x7fc00000u);  // NaN
  // E4M3 bits without the sign, shifted left by 20 and read as float32: the magnitude times 2^-120.
  const float scaled = std::bit_cast<float>(magnitude << 20) * 0x1p120f;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | sign);
}

void convert_to_float32(ConstTensorView source, std::span<float> destination) {
  QKSCOPE_ASSERT(source.is_contiguous());
  QKSCOPE_ASSERT(static_cast<std::size_t>(source.size()) == destination.size());
  switch (source.dtype()) {
    case DType::f32:
      if (!destination.empty())
        std::memcpy(destination.data(), source.bytes(), destination.size_bytes());
      return;
    case DType::bf16:
    case DType::f16:
    case DType::f8_e4m3:
      return QKSCOPE_DISPATCH(to_float32_kernel)(source.bytes(), source.dtype(), destination.size(),
                                                 destination.data());
    case DType::f64: {
      const double* values = source.data<double>();
      for (std::size_t i = 0; i < destination.size(); ++i)
        destination[i] = static_cast<float>(values[i]);
      return;
    }
    default:
      throw_failure("cannot widen {} to float32: only floating types can be widened",
                    dtype_name(source.dtype()));
  }
}

Tensor to_float32(ConstTensorView source) {
  Tensor result(source.shape(), DType::f32);
  convert_to_float32(source, {result.data<float>(), static_cast<std::size_t>(result.size())});
  return result;
}

}  // namespace qkscope
#endif
