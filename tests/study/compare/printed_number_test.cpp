// Rounding errors of printed numbers.
#include <cmath>

#include <gtest/gtest.h>

#include "study/compare/run_tables.h"

namespace qkscope {
namespace {

TEST(PrintedNumber, HalfAUnitOfTheLastDigitInTheUnitOfTheValue) {
  EXPECT_DOUBLE_EQ(rounding_error_bound("0.585", 0.585), 0.0005);
  EXPECT_DOUBLE_EQ(rounding_error_bound("-0.880", -0.88), 0.0005);
  EXPECT_DOUBLE_EQ(rounding_error_bound("+0.952", 0.952), 0.0005);
  EXPECT_DOUBLE_EQ(rounding_error_bound("34%", 0.34), 0.005);
  EXPECT_DOUBLE_EQ(rounding_error_bound("55.4%", 0.554), 0.0005);
  EXPECT_DOUBLE_EQ(rounding_error_bound("3.19e-3", 0.00319), 0.5e-5);
  EXPECT_DOUBLE_EQ(rounding_error_bound("19.4 (x10^3)", 0.0194), 0.5e-4);
  EXPECT_DOUBLE_EQ(rounding_error_bound("0.6449*", 0.6449), 0.5e-4);
  EXPECT_DOUBLE_EQ(rounding_error_bound("3,239", 3239), 0.5);
  EXPECT_DOUBLE_EQ(rounding_error_bound("256K", 262144), 512);
  EXPECT_DOUBLE_EQ(rounding_error_bound("0.0%", 0), 0.0005);
}

TEST(PrintedNumber, DifferencesAddTheirErrorsInQuadrature) {
  EXPECT_DOUBLE_EQ(rounding_error_bound("5-7%", 0.05), 0.005);
  EXPECT_DOUBLE_EQ(rounding_error_bound("5-7%", 0.07), 0.005);
  EXPECT_DOUBLE_EQ(rounding_error_bound("6.0-7.0e-4", 0.0006), 0.5e-5);
  EXPECT_DOUBLE_EQ(rounding_error_bound("0.6094 - 0.5695", 0.0399), 0.5 * std::hypot(1e-4, 1e-4));
}

TEST(PrintedNumber, ApproximateNumbersHaveAnErrorOfOneUnit) {
  EXPECT_DOUBLE_EQ(rounding_error_bound("~0.29 (plateau 1.2M to 4.72M)", 0.29), 0.01);
  EXPECT_DOUBLE_EQ(rounding_error_bound("~26%", 0.26), 0.01);
}

TEST(PrintedNumber, TextsWithoutTheValueGiveNan) {
  EXPECT_TRUE(std::isnan(rounding_error_bound("", 0.5)));
  EXPECT_TRUE(std::isnan(rounding_error_bound("doubles", 2)));
  EXPECT_TRUE(std::isnan(rounding_error_bound("not printed (0 of 300)", 0)));
  EXPECT_TRUE(std::isnan(rounding_error_bound("not printed (103 of 300)", 0.343333)));
  EXPECT_TRUE(std::isnan(rounding_error_bound("0.31", 0.57)));
  // The value is the second number of the text.
  EXPECT_DOUBLE_EQ(rounding_error_bound("p 0.023, plasticity 0.09", 0.09), 0.005);
}

TEST(PrintedNumber, UncertaintiesAreNumbersOrFractions) {
  EXPECT_DOUBLE_EQ(parse_uncertainty("0.002"), 0.002);
  EXPECT_DOUBLE_EQ(parse_uncertainty("1/300"), 1.0 / 300);
  for (const char* text : {"", "x", "1/", "/3", "1/x", "0.1 "})
    EXPECT_TRUE(std::isnan(parse_uncertainty(text))) << text;
}

}  // namespace
}  // namespace qkscope
