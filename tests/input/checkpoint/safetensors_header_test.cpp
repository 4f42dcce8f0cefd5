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

std::string header_error(const std::string& file) {
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

struct InvalidFile {
  const char* name;
  std::string file;
  std::string message;  // substring of the message
};

void PrintTo(const InvalidFile& file, std::ostream* out) {
  *out << file.name;
}

std::string case_name(const testing::TestParamInfo<InvalidFile>& file) {
  return file.param.name;
}

class InvalidSafetensors : public testing::TestWithParam<InvalidFile> {};

TEST_P(InvalidSafetensors, HasItsOwnError) {
  EXPECT_THAT(header_error(GetParam().file), testing::StartsWith("m.safetensors"));
  EXPECT_THAT(header_error(GetParam().file), testing::HasSubstr(GetParam().message));
}

const std::string kGood = one(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])");
const std::string kTwice = "{" + entry("a", 0, 4) + "," + entry("a", 0, 4) + "}";

INSTANTIATE_TEST_SUITE_P(
    File, InvalidSafetensors,
    testing::Values(
        InvalidFile{"Empty", "", "not a safetensors file: 0 bytes long, expected at least 8"},
        InvalidFile{"SevenBytes", "1234567", "7 bytes long, expected at least 8"},
        InvalidFile{"Pointer", "version https://git-lfs.github.com/spec/v1\noid ...",
                    "git lfs pull"},
        InvalidFile{"LengthBeyondFile", safetensors_bytes(100, "{}"),
                    "the file ends inside its header: header of 100 bytes, file of 10 bytes"},
        InvalidFile{"LengthHuge", safetensors_bytes(100'000'001, "{}"),
                    "a header of 100000001 bytes, expected at most 100000000"},
        InvalidFile{"LengthOverflows", safetensors_bytes(~0ull, "{}"),
                    "a header of 18446744073709551615 bytes"},
        InvalidFile{"NoHeader", safetensors_bytes(0, ""), "not valid JSON"},
        InvalidFile{"NotJson", safetensors_bytes("{oops}"),
                    "(header): not valid JSON at line 1, column 2"},
        InvalidFile{"NotUtf8", safetensors_bytes("{\"\xff\":1}"), "not valid JSON"},
        InvalidFile{"TrailingZeros", safetensors_bytes(std::string("{}\0\0", 4)),
                    "column 3: a zero byte"},
        InvalidFile{"Deep", safetensors_bytes(std::string(5000, '[')),
                    "nested deeper than 200 levels"},
        InvalidFile{"NotAMap", safetensors_bytes("[]"),
                    "the header is a JSON array, expected a map"},
        InvalidFile{
            "Truncated", safetensors_bytes(kGood, 5),
            "tensor \"a\" ends at byte 8 of the data section, which has 5 bytes: the file is "
            "truncated"},
        InvalidFile{"Surplus", safetensors_bytes(kGood, 11),
                    "3 bytes after the last tensor belong to no"},
        InvalidFile{"MetadataList", safetensors_bytes(R"({"__metadata__":[]})"),
                    "__metadata__: found array, expected a map of strings"},
        InvalidFile{"MetadataNumber", safetensors_bytes(R"({"__metadata__":{"k":1}})"),
                    "__metadata__ \"k\": found number, expected a string"}),
    case_name);

INSTANTIATE_TEST_SUITE_P(
    Tensor, InvalidSafetensors,
    testing::Values(
        InvalidFile{"Twice", safetensors_bytes(kTwice, 4), "the key \"a\" appears twice"},
        InvalidFile{
            "FieldTwice",
            safetensors_bytes(one(R"("dtype":"U8","dtype":"U8","shape":[],"data_offsets":[0,1])"),
                              1),
            "the key \"dtype\" appears twice"},
        InvalidFile{
            "NotAMap", safetensors_bytes(R"({"a":3})"),
            "tensor \"a\": found number, expected a map with dtype, shape and data_offsets"},
        InvalidFile{"NoDtype", safetensors_bytes(one(R"("shape":[],"data_offsets":[0,1])"), 1),
                    "tensor \"a\": the field dtype is missing"},
        InvalidFile{"NoShape", safetensors_bytes(one(R"("dtype":"U8","data_offsets":[0,1])"), 1),
                    "the field shape is missing"},
        InvalidFile{"NoOffsets", safetensors_bytes(one(R"("dtype":"U8","shape":[])"), 1),
                    "the field data_offsets is missing"},
        InvalidFile{
            "ExtraField",
            safetensors_bytes(one(R"("dtype":"U8","shape":[],"data_offsets":[0,1],"x":0)"), 1),
            "unknown field \"x\""},
        InvalidFile{"DtypeNumber",
                    safetensors_bytes(one(R"("dtype":1,"shape":[],"data_offsets":[0,1])")),
                    "dtype: found number, expected a string"},
        InvalidFile{"ShapeNumber",
                    safetensors_bytes(one(R"("dtype":"U8","shape":1,"data_offsets":[0,1])")),
                    "shape: found number, expected a list"},
        InvalidFile{"ShapeNegative",
                    safetensors_bytes(one(R"("dtype":"U8","shape":[-1],"data_offsets":[0,1])")),
                    "the shape holds -1, expected whole numbers from 0"},
        InvalidFile{"ShapeFraction",
                    safetensors_bytes(one(R"("dtype":"U8","shape":[1.5],"data_offsets":[0,1])")),
                    "the shape holds 1.5, expected whole numbers"},
        InvalidFile{"ShapeText",
                    safetensors_bytes(one(R"("dtype":"U8","shape":["1"],"data_offsets":[0,1])")),
                    "the shape holds string, expected whole numbers"},
        InvalidFile{"ShapeBeyond63Bits",
                    safetensors_bytes(
                        one(R"("dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,1])")),
                    "the shape holds 9223372036854775808"},
        InvalidFile{"ShapeProduct",
                    safetensors_bytes(one(
                        R"("dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,1])")),
                    "the shape [4294967296, 4294967296] has more elements than 64 bits can count"},
        InvalidFile{"ShapeProductBesideZero",
                    safetensors_bytes(one(
                        R"("dtype":"U8","shape":[0,4294967296,4294967296],"data_offsets":[0,0])")),
                    "has more elements than 64 bits can count"},
        InvalidFile{"ShapeBytes",
                    safetensors_bytes(
                        one(R"("dtype":"F64","shape":[4611686018427387904],"data_offsets":[0,1])")),
                    "needs more bytes than 64 bits can count"}),
    case_name);

INSTANTIATE_TEST_SUITE_P(
    Place, InvalidSafetensors,
    testing::Values(
        InvalidFile{"OneOffset",
                    safetensors_bytes(one(R"("dtype":"U8","shape":[],"data_offsets":[0])")),
                    "data_offsets must be a list of two numbers"},
        InvalidFile{"ThreeOffsets",
                    safetensors_bytes(one(R"("dtype":"U8","shape":[],"data_offsets":[0,1,2])")),
                    "data_offsets must be a list of two numbers"},
        InvalidFile{"OffsetNegative",
                    safetensors_bytes(one(R"("dtype":"U8","shape":[],"data_offsets":[-1,0])")),
                    "data_offsets holds -1, expected whole numbers from 0"},
        InvalidFile{"OffsetHuge",
                    safetensors_bytes(
                        one(R"("dtype":"U8","shape":[],"data_offsets":[0,99999999999999999999])")),
                    "data_offsets holds 1e+20, expected whole numbers"},
        InvalidFile{"Reversed",
                    safetensors_bytes(one(R"("dtype":"U8","shape":[],"data_offsets":[1,0])"), 1),
                    "data_offsets are reversed: begin 1, end 0"},
        InvalidFile{"WrongSize",
                    safetensors_bytes(one(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])"), 8),
                    "the shape [3] in F32 needs 12 bytes, but data_offsets give 8"},
        InvalidFile{"WrongSizeOfAnotherType",
                    safetensors_bytes(one(R"("dtype":"U16","shape":[3],"data_offsets":[0,8])"), 8),
                    "the shape [3] in U16 needs 6 bytes, but data_offsets give 8"},
        InvalidFile{"HalfBytes",
                    safetensors_bytes(one(R"("dtype":"F4","shape":[3],"data_offsets":[0,2])"), 2),
                    "the shape [3] in F4 does not fill whole bytes"},
        InvalidFile{
            "Outside",
            safetensors_bytes(one(R"("dtype":"U8","shape":[1],"data_offsets":[4611686018427387904,)"
                                  "4611686018427387905]"),
                              1),
            "ends at byte 4611686018427387905 of the data section, which has 1 bytes"},
        InvalidFile{
            "Overlap", safetensors_bytes("{" + entry("a", 0, 4) + "," + entry("b", 2, 6) + "}", 6),
            "tensors \"a\" and \"b\" overlap: the second begins at byte 2, the first ends at 4"},
        InvalidFile{"SamePlace",
                    safetensors_bytes("{" + entry("a", 0, 4) + "," + entry("b", 0, 4) + "}", 4),
                    "tensors \"a\" and \"b\" overlap"},
        InvalidFile{"EmptyInsideAnother",
                    safetensors_bytes("{" + entry("a", 0, 4) + "," + entry("b", 2, 2) + "}", 4),
                    "tensors \"a\" and \"b\" overlap"},
        InvalidFile{"Hole",
                    safetensors_bytes("{" + entry("a", 0, 4) + "," + entry("b", 6, 8) + "}", 8),
                    "2 bytes before tensor \"b\" belong to no tensor"},
        InvalidFile{"HoleAtTheStart", safetensors_bytes("{" + entry("b", 6, 8) + "}", 8),
                    "6 bytes before tensor \"b\" belong to no tensor"}),
    case_name);

}  // namespace
}  // namespace qkscope
