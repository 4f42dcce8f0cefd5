#include "base/core/base64.h"

#include <string_view>

#include <gtest/gtest.h>

namespace qkscope {
namespace {

std::string encoded(std::string_view text) {
  return base64(std::as_bytes(std::span(text)));
}

TEST(Base64, MatchesTheTestVectorsOfRfc4648) {
  EXPECT_EQ(encoded(""), "");
  EXPECT_EQ(encoded("f"), "Zg==");
  EXPECT_EQ(encoded("fo"), "Zm8=");
  EXPECT_EQ(encoded("foo"), "Zm9v");
  EXPECT_EQ(encoded("foobar"), "Zm9vYmFy");
  EXPECT_EQ(encoded("\xff\xef\xbe"), "/+++");
}

}  // namespace
}  // namespace qkscope
