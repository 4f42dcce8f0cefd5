#include <span>
#include <string>

#include <gmock/gmock.h>

#include "error_message.h"
#include "input/checkpoint/safetensors.h"
#include "input/checkpoint/safetensors_bytes.h"

namespace qkscope {
namespace {

SafetensorsHeader parse_header(const std::string& file) {
  return parse_safetensors_header(std::as_bytes(std::span(file)), "m.safetensors");
}

std::string header_refusal(const std::string& file) {
  return bad_input_message([&] { parse_header(file); });
}

// Builds a header with one tensor "a" that has these fields.
std::string one(const std::string& fields) {
  return R"({"a":{)" + fields + "}}";
}

std::string entry(const std::string& name, int begin, int end) {
  return '"' + name + R"(":{"dtype":"U8","shape":[)" + std::to_string(end - begin) +
         R"(],"data_offsets":[)" + std::to_string(begin) + "," + std::to_string(end) + "]}";
}

TEST(SafetensorsHeader, ParsesTensorsAndMetadata) {
  const std::string text =
      R"({"__metadata__":{"format":"pt"},"w":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},)"
      R"("s":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
      R"("none":{"dtype":"F32","shape":[0,7],"data_offsets":[4,4]}}   )";
  const auto header = parse_header(safetensors_bytes(text, 16));
  EXPECT_EQ(header.data_offset, 8 + text.size());
  EXPECT_EQ(header.metadata.at("format"), "pt");
  ASSERT_EQ(header.tensors.size(), 3u);
  const auto& w = header.tensors.at("w");
  EXPECT_EQ(w.dtype, DType::bf16);
  EXPECT_EQ(w.stored_dtype, "BF16");
  EXPECT_EQ(w.shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(w.begin, 4u);
  EXPECT_EQ(w.end, 16u);
  EXPECT_TRUE(header.tensors.at("s").shape.empty());
}

TEST(SafetensorsHeader, AFileWithoutTensorsIsValid) {
  EXPECT_TRUE(parse_header(safetensors_bytes("{}")).tensors.empty());
  EXPECT_TRUE(parse_header(safetensors_bytes(R"({"__metadata__":null})")).metadata.empty());
}

TEST(SafetensorsHeader, UnknownDtypesAreListedAsUnreadable) {
  const auto header = parse_header(
      safetensors_bytes(R"({"a":{"dtype":"U16","shape":[2],"data_offsets":[0,4]},)"
                        R"("b":{"dtype":"Q3_K","shape":[256],"data_offsets":[4,114]}})",
                        114));
  EXPECT_FALSE(header.tensors.at("a").readable);
  EXPECT_EQ(header.tensors.at("a").stored_dtype, "U16");
  EXPECT_EQ(header.tensors.at("b").stored_dtype, "Q3_K");
}

struct Lie {
  const char* name;
  std::string file;
  std::string message;  // substring of the message
};

void PrintTo(const Lie& lie, std::ostream* out) {
  *out << lie.name;
}

std::string lie_name(const testing::TestParamInfo<Lie>& lie) {
  return lie.param.name;
}

class SafetensorsLie : public testing::TestWithParam<Lie> {};

TEST_P(SafetensorsLie, HasItsOwnError) {
  EXPECT_THAT(header_refusal(GetParam().file), testing::StartsWith("m.safetensors"));
  EXPECT_THAT(header_refusal(GetParam().file), testing::HasSubstr(GetParam().message));
}

const std::string kGood = one(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])");
const std::string kTwice = "{" + entry("a", 0, 4) + "," + entry("a", 0, 4) + "}";

INSTANTIATE_TEST_SUITE_P(
    File, SafetensorsLie,
    testing::Values(
        Lie{"Empty", "", "not a safetensors file: 0 bytes long, expected at least 8"},
        Lie{"SevenBytes", "1234567", "7 bytes long, expected at least 8"},
        Lie{"Pointer", "version https://git-lfs.github.com/spec/v1\noid ...", "git lfs pull"},
        Lie{"LengthBeyondFile", safetensors_bytes(100, "{}"),
            "the file ends inside its header: header of 100 bytes, file of 10 bytes"},
        Lie{"LengthHuge", safetensors_bytes(100'000'001, "{}"),
            "a header of 100000001 bytes, expected at most 100000000"},
        Lie{"LengthOverflows", safetensors_bytes(~0ull, "{}"),
            "a header of 18446744073709551615 bytes"},
        Lie{"NoHeader", safetensors_bytes(0, ""), "not valid JSON"},
        Lie{"NotJson", safetensors_bytes("{oops}"), "(header): not valid JSON at line 1, column 2"},
        Lie{"NotUtf8", safetensors_bytes("{\"\xff\":1}"), "not valid JSON"},
        Lie{"TrailingZeros", safetensors_bytes(std::string("{}\0\0", 4)), "column 3: a zero byte"},
        Lie{"Deep", safetensors_bytes(std::string(5000, '[')), "nested deeper than 200 levels"},
        Lie{"NotAMap", safetensors_bytes("[]"), "the header is a JSON array, expected a map"},
        Lie{"Truncated", safetensors_bytes(kGood, 5),
            "tensor \"a\" ends at byte 8 of the data section, which has 5 bytes: the file is "
            "truncated"},
        Lie{"Surplus", safetensors_bytes(kGood, 11), "3 bytes after the last tensor belong to no"},
        Lie{"MetadataList", safetensors_bytes(R"({"__metadata__":[]})"),
            "__metadata__: found array, expected a map of strings"},
        Lie{"MetadataNumber", safetensors_bytes(R"({"__metadata__":{"k":1}})"),
            "__metadata__ \"k\": found number, expected a string"}),
    lie_name);

INSTANTIATE_TEST_SUITE_P(
    Tensor, SafetensorsLie,
    testing::Values(
        Lie{"Twice", safetensors_bytes(kTwice, 4), "the key \"a\" appears twice"},
        Lie{"FieldTwice",
            safetensors_bytes(one(R"("dtype":"U8","dtype":"U8","shape":[],"data_offsets":[0,1])"),
                              1),
            "the key \"dtype\" appears twice"},
        Lie{"NotAMap", safetensors_bytes(R"({"a":3})"),
            "tensor \"a\": found number, expected a map with dtype, shape and data_offsets"},
        Lie{"NoDtype", safetensors_bytes(one(R"("shape":[],"data_offsets":[0,1])"), 1),
            "tensor \"a\": the field dtype is missing"},
        Lie{"NoShape", safetensors_bytes(one(R"("dtype":"U8","data_offsets":[0,1])"), 1),
            "the field shape is missing"},
        Lie{"NoOffsets", safetensors_bytes(one(R"("dtype":"U8","shape":[])"), 1),
            "the field data_offsets is missing"},
        Lie{"ExtraField",
            safetensors_bytes(one(R"("dtype":"U8","shape":[],"data_offsets":[0,1],"x":0)"), 1),
            "unknown field \"x\""},
        Lie{"DtypeNumber", safetensors_bytes(one(R"("dtype":1,"shape":[],"data_offsets":[0,1])")),
            "dtype: found number, expected a string"},
        Lie{"ShapeNumber", safetensors_bytes(one(R"("dtype":"U8","shape":1,"data_offsets":[0,1])")),
            "shape: found number, expected a list"},
        Lie{"ShapeNegative",
            safetensors_bytes(one(R"("dtype":"U8","shape":[-1],"data_offsets":[0,1])")),
            "the shape holds -1, expected whole numbers from 0"},
        Lie{"ShapeFraction",
            safetensors_bytes(one(R"("dtype":"U8","shape":[1.5],"data_offsets":[0,1])")),
            "the shape holds 1.5, expected whole numbers"},
        Lie{"ShapeText",
            safetensors_bytes(one(R"("dtype":"U8","shape":["1"],"data_offsets":[0,1])")),
            "the shape holds string, expected whole numbers"},
        Lie{"ShapeBeyond63Bits",
            safetensors_bytes(
                one(R"("dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,1])")),
            "the shape holds 9223372036854775808"},
        Lie{"ShapeProduct",
            safetensors_bytes(
                one(R"("dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,1])")),
            "the shape [4294967296, 4294967296] has more elements than 64 bits can count"},
        Lie{"ShapeProductBesideZero",
            safetensors_bytes(
                one(R"("dtype":"U8","shape":[0,4294967296,4294967296],"data_offsets":[0,0])")),
            "has more elements than 64 bits can count"},
        Lie{"ShapeBytes",
            safetensors_bytes(
                one(R"("dtype":"F64","shape":[4611686018427387904],"data_offsets":[0,1])")),
            "needs more bytes than 64 bits can count"}),
    lie_name);

INSTANTIATE_TEST_SUITE_P(
    Place, SafetensorsLie,
    testing::Values(
        Lie{"OneOffset", safetensors_bytes(one(R"("dtype":"U8","shape":[],"data_offsets":[0])")),
            "data_offsets must be a list of two numbers"},
        Lie{"ThreeOffsets",
            safetensors_bytes(one(R"("dtype":"U8","shape":[],"data_offsets":[0,1,2])")),
            "data_offsets must be a list of two numbers"},
        Lie{"OffsetNegative",
            safetensors_bytes(one(R"("dtype":"U8","shape":[],"data_offsets":[-1,0])")),
            "data_offsets holds -1, expected whole numbers from 0"},
        Lie{"OffsetHuge",
            safetensors_bytes(
                one(R"("dtype":"U8","shape":[],"data_offsets":[0,99999999999999999999])")),
            "data_offsets holds 1e+20, expected whole numbers"},
        Lie{"Reversed",
            safetensors_bytes(one(R"("dtype":"U8","shape":[],"data_offsets":[1,0])"), 1),
            "data_offsets are reversed: begin 1, end 0"},
        Lie{"WrongSize",
            safetensors_bytes(one(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])"), 8),
            "the shape [3] in F32 needs 12 bytes, but data_offsets give 8"},
        Lie{"WrongSizeOfAnotherType",
            safetensors_bytes(one(R"("dtype":"U16","shape":[3],"data_offsets":[0,8])"), 8),
            "the shape [3] in U16 needs 6 bytes, but data_offsets give 8"},
        Lie{"HalfBytes",
            safetensors_bytes(one(R"("dtype":"F4","shape":[3],"data_offsets":[0,2])"), 2),
            "the shape [3] in F4 does not fill whole bytes"},
        Lie{"Outside",
            safetensors_bytes(one(R"("dtype":"U8","shape":[1],"data_offsets":[4611686018427387904,)"
                                  "4611686018427387905]"),
                              1),
            "ends at byte 4611686018427387905 of the data section, which has 1 bytes"},
        Lie{"Overlap", safetensors_bytes("{" + entry("a", 0, 4) + "," + entry("b", 2, 6) + "}", 6),
            "tensors \"a\" and \"b\" overlap: the second begins at byte 2, the first ends at 4"},
        Lie{"SamePlace",
            safetensors_bytes("{" + entry("a", 0, 4) + "," + entry("b", 0, 4) + "}", 4),
            "tensors \"a\" and \"b\" overlap"},
        Lie{"EmptyInsideAnother",
            safetensors_bytes("{" + entry("a", 0, 4) + "," + entry("b", 2, 2) + "}", 4),
            "tensors \"a\" and \"b\" overlap"},
        Lie{"Hole", safetensors_bytes("{" + entry("a", 0, 4) + "," + entry("b", 6, 8) + "}", 8),
            "2 bytes before tensor \"b\" belong to no tensor"},
        Lie{"HoleAtTheStart", safetensors_bytes("{" + entry("b", 6, 8) + "}", 8),
            "6 bytes before tensor \"b\" belong to no tensor"}),
    lie_name);

}  // namespace
}  // namespace qkscope
