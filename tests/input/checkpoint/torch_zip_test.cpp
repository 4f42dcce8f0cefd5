// PyTorch zip files: golden files, and the same files after corruption.
#include <cstring>
#include <fstream>
#include <iterator>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/core/error.h"
#include "error_message.h"
#include "input/checkpoint/checkpoint.h"
#include "input/checkpoint/safetensors.h"
#include "paths.h"

namespace qkscope {
namespace {

using testing::HasSubstr;

std::string torch_file() {
  std::ifstream file(source_path("tests/golden/llama_torch/pytorch_model.bin"), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

SafetensorsHeader parse_zip(const std::string& file) {
  return parse_torch_zip_header(std::as_bytes(std::span(file)), "file");
}

std::string zip_refusal(const std::string& file) {
  return bad_input_message([&] { parse_zip(file); });
}

TEST(TorchZip, SingleAndShardedCheckpointsAreRead) {
  for (const auto* name : {"llama_torch", "llama_torch_shards"}) {
    const auto checkpoint = Checkpoint::open(source_path("tests/golden/") + name);
    const auto& info = checkpoint.info("model.layers.1.mlp.down_proj.weight");
    EXPECT_EQ(info.shape, (std::vector<std::int64_t>{32, 48}));
    EXPECT_TRUE(info.file.ends_with(".bin"));
    EXPECT_FALSE(weight_files(checkpoint.folder()).empty());
  }
}

TEST(TorchZip, TensorsAreLocatedInTheFile) {
  const auto file = torch_file();
  for (const auto& [name, entry] : parse_zip(file).tensors) {
    EXPECT_LE(entry.begin, entry.end);
    EXPECT_LE(entry.end, file.size());
  }
}

// Files above 4 GiB keep sizes and positions in an extra field of each member (zip64).
std::string with_zip64_members(const std::string& file) {
  const auto number = [&](std::size_t at, std::size_t size) {
    std::uint64_t value = 0;
    std::memcpy(&value, file.data() + at, size);
    return value;
  };
  const auto bytes = [](std::uint64_t value, std::size_t size) {
    return std::string(reinterpret_cast<const char*>(&value), size);
  };
  const auto begin = file.find("PK\x01\x02");
  std::string directory;
  std::uint64_t count = 0;
  for (auto at = begin; file.substr(at, 4) == "PK\x01\x02"; ++count) {
    const auto name = number(at + 28, 2);
    const auto rest = number(at + 30, 2) + number(at + 32, 2);
    directory += file.substr(at, 20) + std::string(8, '\xff') + bytes(name, 2) + bytes(28, 2) +
                 std::string(2, '\0') + file.substr(at + 34, 8) + std::string(4, '\xff') +
                 file.substr(at + 46, name) + bytes(1, 2) + bytes(24, 2) +
                 bytes(number(at + 24, 4), 8) + bytes(number(at + 20, 4), 8) +
                 bytes(number(at + 42, 4), 8);
    at += 46 + name + rest;
  }
  return file.substr(0, begin) + directory + "PK\x05\x06" + bytes(0, 4) + bytes(count, 2) +
         bytes(count, 2) + bytes(directory.size(), 4) + bytes(begin, 4) + bytes(0, 2);
}

TEST(TorchZip, SizesAndPositionsAbove32BitsAreRead) {
  const auto file = torch_file();
  const auto expected = parse_zip(file).tensors;
  const auto found = parse_zip(with_zip64_members(file)).tensors;
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, entry] : expected) {
    EXPECT_EQ(found.at(name).begin, entry.begin) << name;
    EXPECT_EQ(found.at(name).end, entry.end) << name;
  }
}

TEST(TorchZip, TruncatedFilesAreRejected) {
  const auto file = torch_file();
  for (std::size_t length = 0; length < file.size(); length += 97)
    EXPECT_FALSE(zip_refusal(file.substr(0, length)).empty()) << length;
}

// Corrupts one byte at a time: the file is rejected, or every tensor lies inside the file.
TEST(TorchZip, CorruptBytesNeverCauseReadsOutsideTheFile) {
  const auto file = torch_file();
  std::size_t read = 0;
  for (std::size_t at = file.size() - 4000; at < file.size(); ++at) {
    auto changed = file;
    changed[at] = static_cast<char>(changed[at] ^ 0x81);
    try {
      for (const auto& [name, entry] : parse_zip(changed).tensors)
        ASSERT_TRUE(entry.begin <= entry.end && entry.end <= file.size()) << at;
      ++read;
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::bad_input) << at;
    }
  }
  EXPECT_GT(read, 0u);  // checksums and dates of zip members are ignored
}

TEST(TorchZip, OtherZipFilesAreRejectedWithAReason) {
  EXPECT_THAT(zip_refusal("PK\x03\x04"), HasSubstr("too short"));
  EXPECT_THAT(zip_refusal("no zip"), HasSubstr("before 1.6"));
}

}  // namespace
}  // namespace qkscope
