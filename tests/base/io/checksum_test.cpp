#include "base/io/checksum.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "base/core/error.h"
#include "base/io/output_file.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

TEST(Checksum, IsXxh3InPiecesAndAtOnce) {
  EXPECT_EQ(format_checksum(checksum_of("")), "2d06800538d394c2");  // test vector of XXH3
  Checksum pieces;
  pieces.add("one piece ");
  pieces.add("");
  pieces.add("after another");
  EXPECT_EQ(pieces.value(), checksum_of("one piece after another"));
}

TEST(FileFingerprint, ChangesWithEveryByteOfASmallFile) {
  const TemporaryFolder folder;
  write_file(folder.file("a"), "some bytes");
  write_file(folder.file("b"), "some bytes");
  EXPECT_EQ(file_fingerprint(folder.file("a")), file_fingerprint(folder.file("b")));
  for (std::size_t i = 0; i < 10; ++i) {
    std::string changed = "some bytes";
    changed[i] ^= 1;
    write_file(folder.file("b"), changed);
    EXPECT_NE(file_fingerprint(folder.file("a")), file_fingerprint(folder.file("b"))) << i;
  }
  EXPECT_THROW(file_fingerprint(folder.file("none")), Error);
  EXPECT_THROW(file_fingerprint(folder.path()), Error);
}

TEST(FileFingerprint, SamplesLargeFilesAtFixedStrides) {
  const TemporaryFolder folder;
  const auto path = folder.file("large");
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
  std::ofstream(path) << "header";
  std::filesystem::resize_file(path, 1200 * kMiB);  // sparse
  const auto before = file_fingerprint(path);
  const auto change = [&](std::uint64_t at) {
    std::fstream file(path, std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(at));
    file << "x";
  };
  for (const auto at : {std::uint64_t{100}, 16 * kMiB, 1024 * kMiB + 5, 1200 * kMiB - 1}) {
    const auto last = file_fingerprint(path);
    change(at);
    EXPECT_NE(file_fingerprint(path), last) << at;
  }
  EXPECT_NE(file_fingerprint(path), before);
}

}  // namespace
}  // namespace qkscope
