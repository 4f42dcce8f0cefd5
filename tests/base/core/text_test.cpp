#include "base/core/text.h"

#include <gtest/gtest.h>

#include "base/core/error.h"

namespace qkscope {
namespace {

TEST(Text, NearestFindsTypos) {
  const std::vector<std::string> names = {"max_length", "padding", "name"};
  EXPECT_EQ(closest_spelling("max_lenght", names), "max_length");
  EXPECT_EQ(closest_spelling("nmae", names), "name");
  EXPECT_EQ(closest_spelling("zzzzzzzzzz", names), "");
}

TEST(Text, AsciiLowerLeavesOtherBytes) {
  EXPECT_EQ(ascii_lower("Zaaß[@`{ÄZ-09"), "zaaß[@`{Äz-09");
}

TEST(Text, GlobMatchesStarsAndQuestionMarks) {
  EXPECT_TRUE(glob_match("blocks.*.attn.hook_q", "blocks.12.attn.hook_q"));
  EXPECT_TRUE(glob_match("*", ""));
  EXPECT_TRUE(glob_match("*rot_?", "blocks.0.attn.hook_rot_q"));
  EXPECT_FALSE(glob_match("blocks.*.hook_q", "blocks.1.attn.hook_k"));
  EXPECT_FALSE(glob_match("", "x"));
  EXPECT_TRUE(glob_match("a*b*c", "a-b-b-c"));
}

TEST(Text, FormatsCountsAndBytes) {
  EXPECT_EQ(format_count(1234567), "1,234,567");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(split("a,,b", ','), (std::vector<std::string>{"a", "", "b"}));
}

TEST(Text, QuotedNamesAreEscapedAndTruncated) {
  EXPECT_EQ(quote_text("model.norm"), "\"model.norm\"");
  EXPECT_EQ(quote_text("a\x1b[31m\"\n\\"), "\"a\\x1b[31m\\\"\\x0a\\\\\"");
  EXPECT_EQ(quote_text(std::string(5000, 'x')).size(), 205u);
}

TEST(Text, PrintableEscapesTerminalControl) {
  EXPECT_EQ(printable("größer\n\t世界"), "größer\n\t世界");
  EXPECT_EQ(printable("a\x1b[2J\rb\x7f"), "a\\x1b[2J\\x0db\\x7f");
  EXPECT_EQ(printable("\xc2\x9b[2J"), "\\x9b[2J");  // a two-byte control character
  EXPECT_EQ(printable("a\xff\xe2\x82"), "a\\xff\\xe2\\x82");
  EXPECT_EQ(printable("\u202egpj.exe"), "\\u{202e}gpj.exe");
}

TEST(Text, ParseIntegerRefusesOtherText) {
  EXPECT_EQ(parse_integer("-12", "--x"), -12);
  EXPECT_THROW(parse_integer("12x", "--x"), Error);
  EXPECT_THROW(parse_integer("", "--x"), Error);
  EXPECT_THROW(parse_integer("99999999999999999999", "--x"), Error);
}

TEST(Text, ParseBytesUnderstandsUnits) {
  constexpr std::int64_t kGiB = std::int64_t{1} << 30;
  EXPECT_EQ(parse_bytes("4096", "--x"), 4096);
  EXPECT_EQ(parse_bytes("8GiB", "--x"), 8 * kGiB);
  EXPECT_EQ(parse_bytes("8g", "--x"), 8 * kGiB);
  EXPECT_EQ(parse_bytes("1.5 gib", "--x"), kGiB + kGiB / 2);
  EXPECT_EQ(parse_bytes("8GB", "--x"), 8'000'000'000);
  EXPECT_EQ(parse_bytes("2TiB", "--x"), 2048 * kGiB);
  EXPECT_EQ(parse_bytes("512b", "--x"), 512);
  for (const auto* wrong :
       {"", "GiB", "-8GiB", "0", "8 Gi", "8XB", "nan", "inf", "1e3", "9999999TiB"})
    EXPECT_THROW(parse_bytes(wrong, "--x"), Error) << wrong;
}

std::string encoded(std::string_view text) {
  return encode_base64(std::as_bytes(std::span(text)));
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
