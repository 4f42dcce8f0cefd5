// PyTorch zip files: golden files, and the same files after corruption.
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
