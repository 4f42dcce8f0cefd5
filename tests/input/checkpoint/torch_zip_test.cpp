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
    const auto& info = checkpoint.tensor_info("model.layers.1.mlp.down_proj.weight");
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

std::string bytes_of(std::uint64_t value, std::size_t size) {
  return {reinterpret_cast<const char*>(&value), size};
}

struct Member {
  std::string name, content;
  std::uint16_t flags = 0, method = 0;
  std::string extra = {};             // of the directory
  std::uint32_t header = 0xffffffff;  // where the directory says that the member begins
};

// A zip file of these members. `directory` replaces the place of the directory.
std::string zip_of(const std::vector<Member>& members, std::uint32_t directory = 0) {
  std::string file, records;
  for (const auto& [name, content, flags, method, extra, header] : members) {
    const auto sizes = bytes_of(content.size(), 4) + bytes_of(content.size(), 4);
    records += "PK\x01\x02" + bytes_of(0, 4) + bytes_of(flags, 2) + bytes_of(method, 2) +
               std::string(8, '\0') + sizes + bytes_of(name.size(), 2) + bytes_of(extra.size(), 2) +
               std::string(10, '\0') + bytes_of(header == 0xffffffff ? file.size() : header, 4) +
               name + extra;
    file += "PK\x03\x04" + std::string(14, '\0') + sizes + bytes_of(name.size(), 2) +
            bytes_of(0, 2) + name + content;
  }
  return file + records + "PK\x05\x06" + bytes_of(0, 4) + bytes_of(members.size(), 2) +
         bytes_of(members.size(), 2) + bytes_of(records.size(), 4) +
         bytes_of(directory == 0 ? file.size() : directory, 4) + bytes_of(0, 2);
}

// A state dictionary of one tensor "w" in storage "0", with an offset, a shape and strides of one
// byte each.
std::string pickle_of(const std::string& offset, const std::string& shape,
                      const std::string& strides) {
  using namespace std::string_literals;
  const auto tuple = [](const std::string& numbers) {
    std::string items = "(";
    for (const char number : numbers) items += std::string("K") + number;
    return items + "t";
  };
  return "}\x8c\x01w"
         "ctorch._utils\n_rebuild_tensor_v2\n("
         "(\x8c\x07storage"
         "ctorch\nFloatStorage\n\x8c\x01"
         "0\x8c\x03"
         "cpuK\x01tQK"s +
         offset + tuple(shape) + tuple(strides) + "\x89NtRs.";
}

// One row per refusal: the file, and what the message says.
TEST(TorchZip, RefusalsSayWhatIsWrong) {
  using namespace std::string_literals;
  const Member data{.name = "a/data/0", .content = std::string(24, 'x')};
  const auto pickled = [&](const std::string& offset, const std::string& shape,
                           const std::string& strides) {
    return zip_of({{.name = "a/data.pkl", .content = pickle_of(offset, shape, strides)}, data});
  };
  const auto whole = pickled("\0"s, "\2\3", "\3\1");
  EXPECT_EQ(parse_zip(whole).tensors.at("w").shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(parse_zip(pickled("\0"s, "\1\6", "\7\1")).tensors.at("w").shape.front(), 1);
  EXPECT_EQ(parse_zip(pickled("\6", "\2\0"s, "\3\1")).tensors.at("w").shape.back(), 0);
  const std::pair<std::string, std::string> rows[] = {
      {"its directory is missing, so it was cut off", "PK\x03\x04" + std::string(100, 'x')},
      {"a record of its directory is not where it should be", zip_of({data}, 1)},
      {"a record reaches beyond the end of the file", zip_of({data}, 1 << 30)},
      {"\"a/data/0\" is there twice", zip_of({data, data})},
      {"\"b\" is compressed or encrypted", zip_of({{.name = "b", .content = "x", .method = 8}})},
      {"\"b\" is compressed or encrypted", zip_of({{.name = "b", .content = "x", .flags = 1}})},
      {"a member is not where its directory says",
       zip_of({{.name = "b", .content = "x", .header = 1}})},
      {"the end of its 64-bit directory is not where it should be",
       [] {
         auto file = zip_of({{.name = "b", .content = std::string(60, 'x')}});
         const auto end = file.rfind("PK\x05\x06");
         return file.insert(end, "PK\x06\x07" + std::string(16, '\0'));
       }()},
      {"it holds no data.pkl", zip_of({data})},
      {"with the byte order \"big\", expected little",
       zip_of({{.name = "a/data.pkl", .content = pickle_of("\0"s, "", "")},
               {.name = "a/byteorder", .content = "big"}})},
      {"lies in storage \"0\", which is not in the file",
       zip_of({{.name = "a/data.pkl", .content = pickle_of("\0"s, "", "")}})},
      {"is stored with gaps or transposed", pickled("\0"s, "\2\3", "\1\2")},
      {"needs elements 1 to 7 of storage \"0\", which has 6", pickled("\1", "\2\3", "\3\1")},
      {"needs elements 7 to 8 of storage", pickled("\7", "\1", "\1")},
  };
  for (const auto& [message, file] : rows) EXPECT_THAT(zip_refusal(file), HasSubstr(message));
  // Other extra fields and a comment are skipped.
  auto extra = zip_of({{.name = "a/data.pkl",
                        .content = pickle_of("\0"s, "\6", "\1"),
                        .extra = bytes_of(7, 2) + bytes_of(1, 2) + "x"},
                       data});
  EXPECT_EQ(parse_zip(extra + std::string(60'000, '\0')).tensors.size(), 1u);
  EXPECT_THAT(zip_refusal(extra + std::string(70'000, '\0')), HasSubstr("so it was cut off"));
}

TEST(TorchZip, OtherZipFilesAreRejectedWithAReason) {
  EXPECT_THAT(zip_refusal("PK\x03\x04"), HasSubstr("too short"));
  EXPECT_THAT(zip_refusal("no zip"), HasSubstr("before 1.6"));
}

TEST(TensorPickle, ImpossibleTensorsAreRefused) {
  using namespace std::string_literals;
  const auto refused = [](const std::string& shape, const std::string& strides,
                          const std::string& storage =
                              "\x8c\x01"
                              "0") {
    return zip_refusal(zip_of({{.name = "a/data.pkl",
                                .content = "}\x8c\x01w"
                                           "ctorch._utils\n_rebuild_tensor_v2\n((\x8c\x07storage"
                                           "ctorch\nFloatStorage\n"s +
                                           storage +
                                           "\x8c\x03"
                                           "cpuK\x01tQK" +
                                           std::string(1, '\0') + shape + strides + "\x89NtRs."}}));
  };
  EXPECT_THAT(refused("(K\x02t", "(t"), HasSubstr("do not fit together"));
  EXPECT_THAT(refused("(J\xff\xff\xff\xfft", "(K\x01t"), HasSubstr("a size or stride of -1"));
  EXPECT_THAT(refused("(t", "(t", "\x8c\x41" + std::string(65, '0')),
              HasSubstr("a storage has a name of 65 bytes"));
}

}  // namespace
}  // namespace qkscope
