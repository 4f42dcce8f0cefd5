// Keys match Python: int.from_bytes(blake2b(text, digest_size=8).digest(), "little", signed=True).
#include <limits>

#include <gtest/gtest.h>

#include "base/io/checksum.h"
#include "input/texts/dataset_files.h"

namespace qkscope {
namespace {

TEST(ExampleKey, HashesText) {
  EXPECT_EQ(derive_example_key(ExampleId::from_string("")), -5426141060434712860);
  EXPECT_EQ(derive_example_key(ExampleId::from_string("abc")), 6455300059550759896);
  EXPECT_EQ(derive_example_key(ExampleId::from_string("naïve 世界")), 469009362197748521);
  EXPECT_EQ(derive_example_key(ExampleId::from_string(std::string(128, 'x'))), 154496675747142800);
  EXPECT_EQ(derive_example_key(ExampleId::from_string(std::string(129, 'x'))),
            -6654650259784540648);
  EXPECT_EQ(derive_example_key(ExampleId::from_string(std::string(1000, 'y'))),
            -9079255273931152150);
}

TEST(ExampleKey, KeepsIntegers) {
  EXPECT_EQ(derive_example_key(ExampleId::from_number(std::int64_t{-7})), -7);
  EXPECT_EQ(derive_example_key(ExampleId::from_number(std::uint64_t{42})), 42);
  EXPECT_EQ(derive_example_key(ExampleId::from_number(3.0)), 3);
  EXPECT_EQ(ExampleId::from_number(3.0).text, "3");
  EXPECT_EQ(derive_example_key(ExampleId::from_number(-9223372036854775808.0)),
            std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(derive_example_key(ExampleId::from_digits("-12")), -12);
}

TEST(ExampleKey, HashesFractionsAndNumbersBeyond64Bits) {
  EXPECT_EQ(ExampleId::from_number(2.5).text, "2.5");
  EXPECT_EQ(derive_example_key(ExampleId::from_number(2.5)), -5457157173764096425);
  EXPECT_EQ(derive_example_key(ExampleId::from_number(1e20)), 7252886516309196143);
  EXPECT_EQ(derive_example_key(ExampleId::from_digits("100000000000000000000")),
            7252886516309196143);
  EXPECT_EQ(derive_example_key(ExampleId::from_number(std::uint64_t{9223372036854775808u})),
            -4436916390290898806);
  EXPECT_FALSE(ExampleId::from_number(std::numeric_limits<double>::quiet_NaN()).integer);
  EXPECT_FALSE(ExampleId::from_number(std::numeric_limits<double>::infinity()).integer);
  EXPECT_FALSE(ExampleId::from_digits("12x").integer);
  EXPECT_FALSE(ExampleId::from_digits("").integer);
}

}  // namespace
}  // namespace qkscope
