#include "base/io/byte_reader.h"

#include <string>

#include <gtest/gtest.h>

#include "error_message.h"

namespace qkscope {
namespace {

using namespace std::string_view_literals;

constexpr auto kBytes = "\x01\x02\x03\x04\x05\x06\x07\x08text"sv;

ByteReader reader_of(std::string_view bytes) {
  return {bytes, [](const TruncatedRead& read) {
            reject("f: {} wants {} bytes at {}, {} are there", read.field, read.wanted, read.offset,
                   read.available);
          }};
}

TEST(ByteReader, TakesLittleEndianNumbersAndText) {
  auto reader = reader_of(kBytes);
  EXPECT_EQ(reader.read<std::uint16_t>(), 0x0201u);
  EXPECT_EQ(reader.read_integer(3), 0x050403u);
  EXPECT_EQ(reader.offset(), 5u);
  EXPECT_EQ(reader.read_bytes(3).size(), 3u);
  EXPECT_EQ(reader.read_text(4), "text");
  EXPECT_EQ(reader.bytes_left(), 0u);
  EXPECT_EQ(reader.read_text(0), "");
}

TEST(ByteReader, ReadsAtAnOffsetWithoutMoving) {
  const auto reader = reader_of(kBytes);
  EXPECT_EQ(reader.integer_at(4, 2), 0x0605u);
  EXPECT_EQ(reader.bytes_at(8, 4).size(), 4u);
  EXPECT_EQ(reader.offset(), 0u);
}

TEST(ByteReader, ReadsBeyondTheEndCallTheErrorHandler) {
  auto reader = reader_of(kBytes);
  reader.read_bytes(10);
  EXPECT_EQ(bad_input_message([&] { reader.read<std::uint32_t>("a size"); }),
            "f: a size wants 4 bytes at 10, 2 are there");
  EXPECT_EQ(bad_input_message([&] { reader.read_text(~std::uint64_t{0}, "a name"); }),
            "f: a name wants 18446744073709551615 bytes at 10, 2 are there");
  EXPECT_EQ(bad_input_message([&] { reader.integer_at(~std::uint64_t{0}, 1, "a flag"); }),
            "f: a flag wants 1 bytes at 18446744073709551615, 0 are there");
  EXPECT_EQ(reader.offset(), 10u);
}

TEST(ByteReader, AHandlerThatReturnsIsAFailure) {
  const ByteReader reader("abc"sv, [](const TruncatedRead&) {});
  EXPECT_THROW(reader.integer_at(0, 8), Error);
}

}  // namespace
}  // namespace qkscope
