#include <cstdint>
#include <cstring>
#include <filesystem>
#include <thread>

#include <gmock/gmock.h>

#include "base/io/output_file.h"
#include "error_message.h"
#include "input/checkpoint/safetensors.h"
#include "input/checkpoint/safetensors_bytes.h"
#include "python.h"
#include "qkscope/model.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

using testing::HasSubstr;

Tensor counting(const Shape& shape, DType dtype) {
  Tensor tensor(shape, dtype);
  auto* bytes = tensor.view().bytes();
  for (std::size_t i = 0; i < tensor.view().size_bytes(); ++i) bytes[i] = std::byte(i * 7 + 1);
  return tensor;
}

bool same(ConstTensorView a, ConstTensorView b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         std::memcmp(a.bytes(), b.bytes(), a.size_bytes()) == 0;
}

std::uintptr_t address(ConstTensorView view) {
  return reinterpret_cast<std::uintptr_t>(view.bytes());
}

TEST(SafetensorsFile, RoundTripPreservesTensorsAndMetadata) {
  const TemporaryFolder folder;
  const auto path = folder.file("t.safetensors");
  std::vector<Tensor> tensors;
  std::vector<NamedTensor> named;
  for (const auto dtype : {DType::f32, DType::f16, DType::bf16, DType::f8_e4m3, DType::f64,
                           DType::i64, DType::i32, DType::i16, DType::i8, DType::u8}) {
    tensors.push_back(counting({2, 4, 1, 3}, dtype));
    named.push_back({std::string(dtype_name(dtype)), tensors.back()});
  }
  const Tensor scalar = counting({}, DType::f32);
  const Tensor none({0, 3}, DType::f32);
  named.push_back({"a scalar", scalar});
  named.push_back({"none", none});
  write_safetensors(path, named, {{"format", "pt"}, {"π", "\"\n"}});

  const SafetensorsFile file(path);
  EXPECT_EQ(file.header().tensors.size(), named.size());
  EXPECT_EQ(file.header().data_offset % 64, 0u);
  EXPECT_EQ(file.header().metadata.at("π"), "\"\n");
  std::uint64_t offset = 0;
  for (const auto& [name, tensor] : named) {
    EXPECT_TRUE(same(file.tensor(name), tensor)) << name;
    EXPECT_EQ(file.header().tensors.at(name).begin, offset) << name;
    offset = file.header().tensors.at(name).end;
  }
}

TEST(SafetensorsFile, TensorsAreZeroCopyViews) {
  const TemporaryFolder folder;
  const Tensor tensor = counting({16}, DType::f32);
  write_safetensors(folder.file("t.safetensors"), std::vector<NamedTensor>{{"x", tensor}});
  SafetensorsFile file(folder.file("t.safetensors"));
  const auto before = file.tensor("x");
  const SafetensorsFile moved(std::move(file));
  EXPECT_EQ(address(before), address(moved.tensor("x")));
  EXPECT_TRUE(same(before, tensor));
}

TEST(SafetensorsFile, UnalignedTensorsAreCopiedOnce) {
  const TemporaryFolder folder;
  std::string header = R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  while ((8 + header.size()) % 4 != 1) header += ' ';
  write_file(folder.file("t.safetensors"),
             safetensors_bytes(header.size(), header, std::string("\0\0\x80\x3f\0\0\0\x40", 8)));
  const SafetensorsFile file(folder.file("t.safetensors"));
  ConstTensorView other;
  std::thread([&] { other = file.tensor("x"); }).join();
  const auto view = file.tensor("x");
  EXPECT_EQ(address(view) % alignof(float), 0u);
  EXPECT_EQ(address(view), address(other));
  EXPECT_EQ(view.data<float>()[0], 1.0f);
  EXPECT_EQ(view.data<float>()[1], 2.0f);
}

TEST(SafetensorsFile, UnsupportedTensorsAreRejectedOnAccess) {
  const TemporaryFolder folder;
  write_file(folder.file("t.safetensors"),
             safetensors_bytes(R"({"u":{"dtype":"U16","shape":[1],"data_offsets":[0,2]},)"
                               R"("deep":{"dtype":"U8","shape":[1,1,1,1,1],"data_offsets":[2,3]}})",
                               3));
  const SafetensorsFile file(folder.file("t.safetensors"));
  EXPECT_THAT(
      bad_input_message([&] { file.tensor("u"); }),
      HasSubstr("tensor \"u\" is stored as \"U16\", which is not supported; supported: F32"));
  EXPECT_THAT(bad_input_message([&] { file.tensor("deep"); }),
              HasSubstr("tensor \"deep\" has 5 dimensions; at most 4 are supported"));
  EXPECT_THAT(bad_input_message([&] { file.tensor("x"); }), HasSubstr("no tensor \"x\""));
}

TEST(SafetensorsFile, AMissingFileIsNamedInTheError) {
  EXPECT_THAT(bad_input_message([] { SafetensorsFile file("absent.safetensors"); }),
              HasSubstr("absent.safetensors: cannot open"));
}

TEST(SafetensorsWriter, RejectsDuplicateReservedAndInvalidNames) {
  const TemporaryFolder folder;
  const auto path = folder.file("t.safetensors");
  const Tensor tensor = counting({1}, DType::u8);
  const auto refusal = [&](const std::vector<NamedTensor>& tensors) {
    return bad_input_message([&] { write_safetensors(path, tensors); });
  };
  EXPECT_THAT(refusal({{"x", tensor}, {"x", tensor}}), HasSubstr("name \"x\" is given twice"));
  EXPECT_THAT(refusal({{"__metadata__", tensor}}), HasSubstr("\"__metadata__\" is reserved"));
  EXPECT_THAT(refusal({{"\xff", tensor}}), HasSubstr("not UTF-8"));
  EXPECT_FALSE(std::filesystem::exists(path));
}

// The Python package safetensors reads our file, and we read a file that it wrote.
TEST(SafetensorsWriter, FilesAreReadableByTheSafetensorsLibrary) {
  const TemporaryFolder folder;
  const Tensor bf16 = counting({3, 5}, DType::bf16);
  const Tensor f32 = counting({4}, DType::f32);
  const Tensor f8 = counting({7}, DType::f8_e4m3);
  const Tensor i64 = counting({}, DType::i64);
  const std::vector<NamedTensor> tensors = {{"z", bf16}, {"a", f32}, {"e", f8}, {"i", i64}};
  write_safetensors(folder.file("ours.safetensors"), tensors, {{"made by", "qkscope"}});
  ASSERT_EQ(run_python("tests/input/checkpoint/python_roundtrip.py", {folder.path()}), 0);
  const SafetensorsFile theirs(folder.file("theirs.safetensors"));
  EXPECT_EQ(theirs.header().metadata.at("made by"), "Python");
  EXPECT_EQ(theirs.header().tensors.size(), 3u);
  EXPECT_TRUE(same(theirs.tensor("a"), f32));
  EXPECT_TRUE(same(theirs.tensor("i"), i64));
  EXPECT_TRUE(same(theirs.tensor("h"), counting({2, 3}, DType::f16)));
}

}  // namespace
}  // namespace qkscope
