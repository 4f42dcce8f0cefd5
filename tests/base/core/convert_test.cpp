#include "base/core/convert.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "base/core/error.h"
#include "cpu_targets.h"

namespace qkscope {
namespace {

TEST(Convert, Bf16RoundTripsEveryValue) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = to_float(Bf16{static_cast<std::uint16_t>(bits)});
    if (std::isnan(value))
      EXPECT_TRUE(std::isnan(to_float(to_bf16(value))));
    else
      EXPECT_EQ(to_bf16(value).bits, bits);
  }
}

TEST(Convert, Fp16RoundTripsEveryValue) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = to_float(Fp16{static_cast<std::uint16_t>(bits)});
    if (std::isnan(value))
      EXPECT_TRUE(std::isnan(to_float(to_fp16(value))));
    else
      EXPECT_EQ(to_fp16(value).bits, bits) << value;
  }
}

TEST(Convert, RoundsToNearestEven) {
  EXPECT_EQ(to_bf16(1.0f + 0x1p-8f).bits, 0x3f80);      // tie: to even, down
  EXPECT_EQ(to_bf16(1.0f + 3 * 0x1p-8f).bits, 0x3f82);  // tie: to even, up
  EXPECT_EQ(to_bf16(1.0f + 0x1.2p-8f).bits, 0x3f81);    // above the tie
  EXPECT_EQ(to_fp16(1.0f + 0x1p-11f).bits, 0x3c00);
  EXPECT_EQ(to_fp16(1.0f + 3 * 0x1p-11f).bits, 0x3c02);
  EXPECT_EQ(to_fp16(65504.0f).bits, 0x7bff);
  EXPECT_EQ(to_fp16(65520.0f).bits, 0x7c00);  // rounds to infinity
  EXPECT_EQ(to_fp16(0x1p-25f).bits, 0x0000);  // half the smallest subnormal: tie to even
  EXPECT_EQ(to_fp16(0x1.8p-25f).bits, 0x0001);
}

TEST(Convert, E4m3MatchesKnownValues) {
  EXPECT_EQ(to_float(Fp8E4m3{0x00}), 0.0f);
  EXPECT_EQ(to_float(Fp8E4m3{0x01}), 0x1p-9f);
  EXPECT_EQ(to_float(Fp8E4m3{0x38}), 1.0f);
  EXPECT_EQ(to_float(Fp8E4m3{0xb8}), -1.0f);
  EXPECT_EQ(to_float(Fp8E4m3{0x7e}), 448.0f);
  EXPECT_TRUE(std::isnan(to_float(Fp8E4m3{0x7f})));
}

// Checks every bit pattern of a narrow type and every length up to a few vectors.
template <typename Stored>
void expect_widened_like_single_values(std::size_t codes) {
  Tensor source({static_cast<std::int64_t>(codes)}, DTypeOf<Stored>::value);
  for (std::size_t i = 0; i < codes; ++i)
    source.data<Stored>()[i].bits = static_cast<decltype(Stored::bits)>(i);
  for_each_cpu_target([&](const std::string&) {
    for (std::size_t count = codes; count > 0; count = count > 40 ? 40 : count - 1) {
      std::vector<float> out(count + 1, -7.0f);
      const ConstTensorView part(source.view().bytes(), source.dtype(),
                                 {static_cast<std::int64_t>(count)});
      convert_to_float32(part, {out.data(), count});
      for (std::size_t i = 0; i < count; ++i)
        EXPECT_EQ(std::bit_cast<std::uint32_t>(out[i]),
                  std::bit_cast<std::uint32_t>(to_float(source.data<Stored>()[i])))
            << i;
      EXPECT_EQ(out[count], -7.0f);
    }
  });
}

TEST(Convert, WidenMatchesScalarConversionBitForBit) {
  expect_widened_like_single_values<Bf16>(0x10000);
  expect_widened_like_single_values<Fp16>(0x10000);
  expect_widened_like_single_values<Fp8E4m3>(0x100);
}

TEST(Convert, WidenRefusesIntegers) {
  Tensor integers({3}, DType::i32);
  std::vector<float> out(3);
  EXPECT_THROW(convert_to_float32(integers, out), Error);
}

}  // namespace
}  // namespace qkscope
