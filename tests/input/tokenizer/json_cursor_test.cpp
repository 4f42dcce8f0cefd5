#include <gtest/gtest.h>

#include "base/core/error.h"
#include "input/tokenizer/tokenizer_components.h"

namespace qkscope {
namespace {

TEST(JsonCursor, ReadsMembersInOrder) {
  JsonCursor cursor(
      R"( {"a": 1, "b\n\u00e9\ud83d\ude00" : [ "x", "y" ], "c": {"d": [1, {"e": "}"}]}} )", "test");
  cursor.enter_container('{');
  ASSERT_TRUE(cursor.next_member('}'));
  EXPECT_EQ(cursor.read_key(), "a");
  EXPECT_EQ(cursor.read_integer(), 1);
  ASSERT_TRUE(cursor.next_member('}'));
  EXPECT_EQ(cursor.read_key(), "b\né😀");
  cursor.enter_container('[');
  ASSERT_TRUE(cursor.next_member(']'));
  EXPECT_EQ(cursor.read_string(), "x");
  ASSERT_TRUE(cursor.next_member(']'));
  EXPECT_EQ(cursor.read_string(), "y");
  ASSERT_FALSE(cursor.next_member(']'));
  ASSERT_TRUE(cursor.next_member('}'));
  EXPECT_EQ(cursor.read_key(), "c");
  EXPECT_EQ(cursor.read_raw_value(), R"({"d": [1, {"e": "}"}]})");
  ASSERT_FALSE(cursor.next_member('}'));
  cursor.expect_end();
}

TEST(JsonCursor, RejectsInvalidJson) {
  const auto read = [](std::string_view text) {
    JsonCursor cursor(text, "test");
    cursor.enter_container('{');
    while (cursor.next_member('}')) {
      cursor.read_key();
      cursor.read_integer();
    }
    cursor.expect_end();
  };
  EXPECT_NO_THROW(read("{\"a\":1,\"b\":-2}"));
  EXPECT_NO_THROW(read(" {\r\n\t\"\\ue000\":1}"));
  const auto skip = [](const std::string& text) { JsonCursor(text, "test").read_raw_value(); };
  EXPECT_NO_THROW(skip("[1, {\"a\": true}]"));
  for (const auto& text :
       {std::string(201, '['), std::string("}"), std::string(","), std::string("[")})
    EXPECT_THROW(skip(text), Error) << text;
  for (const char* text : {"",
                           "{",
                           "[",
                           "{\"a\"",
                           "{\"a\":",
                           "{\"a\":1",
                           "{\"a\":1,",
                           "{\"a\":1.5}",
                           "{\"a\":x}",
                           "{\"a\" 1}",
                           "{\"a\":1 \"b\":2}",
                           "{\"\\x\":1}",
                           "{\"\\u12\":1}",
                           "{\"\\ud800\":1}",
                           "{\"\\ud800\\u0041\":1}",
                           "{\"\\udc00\":1}",
                           "{\"\\ud800\\ue000\":1}",
                           "{\"\\u1",
                           "{\"\\",
                           "{\"a",
                           "{\"\\uzzzz\":1}",
                           "{\"a\":1e5}",
                           "{\"a\":1E5}",
                           "{\"a\nb\":1}",
                           "{\"a\":1}}",
                           "{\"a\":99999999999999999999}"}) {
    EXPECT_THROW(read(text), Error) << text;
  }
}

}  // namespace
}  // namespace qkscope
