// Segments and journals on their own.
#include "captures/segment.h"

#include <algorithm>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "captures/journal.h"
#include "captures/layout.h"
#include "core/error.h"
#include "io/mapped_file.h"
#include "io/output_file.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

using testing::ElementsAre;

class SegmentFile : public testing::Test {
 protected:
  static constexpr std::size_t kGroups = 2;

  void write() {
    SegmentWriter writer(path(), kGroups);
    EXPECT_EQ(writer.add_example({.row = 4, .key = -1, .source_id = "first", .tokens = 9}), 0u);
    writer.add_example(
        {.row = 7, .key = (std::int64_t{1} << 40) + 3, .source_id = "", .truncated = true});
    const std::vector<std::int32_t> positions = {2, 5};
    const std::vector<std::string_view> strings = {"Ġa", ""};
    Tensor vectors({2, 2, 2});  // (rows, heads, head_dim)
    std::ranges::copy(std::vector<float>{1, 2, 5, 6, 3, 4, 7, 8}, vectors.data<float>());
    writer.add_block(1, 1, positions, strings, vectors);
    writer.commit();
  }
  std::string path() const { return folder_.file("a.seg"); }

  TemporaryFolder folder_;
};

TEST_F(SegmentFile, ReadsBackWhatWasWritten) {
  write();
  const SegmentReader reader(path(), kGroups);
  const auto table = reader.example_table();
  ASSERT_EQ(table.size(), 2u);
  EXPECT_EQ(table[0].row, 4);
  EXPECT_EQ(table[0].key, -1);
  EXPECT_EQ(table[0].source_id, "first");
  EXPECT_TRUE(table[1].truncated);
  const auto index = reader.index(1);
  EXPECT_EQ(index[0].rows, 0u);
  EXPECT_EQ(index[1].example_id, 3);  // the low bits
  HeadBlock block;
  reader.read(index[1], 1, 2, block);
  EXPECT_THAT(block.positions, ElementsAre(2, 5));
  EXPECT_THAT(block.token_strings, ElementsAre("Ġa", ""));
  EXPECT_THAT(block.vectors, ElementsAre(5, 6, 7, 8));
  reader.read(index[0], 1, 2, block);
  EXPECT_TRUE(block.positions.empty() && block.vectors.empty());
}

TEST_F(SegmentFile, IsNotThereBeforeItIsWhole) {
  {
    SegmentWriter writer(path(), kGroups);
    writer.add_example({});
    EXPECT_FALSE(std::filesystem::exists(path()));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(SegmentFile, CutAnywhereItIsRefused) {
  write();
  const auto whole = std::string(MappedFile(path()).text());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    write_file(path(), whole.substr(0, size));
    EXPECT_THROW(SegmentReader(path(), kGroups), Error) << size;
  }
  write_file(path(), whole);
  EXPECT_THROW(SegmentReader(path(), kGroups + 1), Error);
}

TEST(Journal, CountsWhatItNames) {
  const TemporaryFolder folder;
  Manifest manifest;
  manifest.identity = {{"a", 1}};
  EXPECT_FALSE(Journal::exists(folder.path()));
  Journal::create(folder.path(), manifest);
  Journal journal(folder.path());
  write_file(folder.file("00000000.seg"), "x");
  write_file(folder.file("stray.seg.12.tmp"), "x");
  journal.add({.segment = segment_name(0), .examples = 3, .rows = 5, .tokens = 70});
  journal.remove_strays();
  EXPECT_FALSE(std::filesystem::exists(folder.file("stray.seg.12.tmp")));
  EXPECT_EQ(segment_name(1), "00000001.seg");
  const Journal again(folder.path());
  EXPECT_EQ(again.examples(), 3);
  EXPECT_EQ(again.rows(), 5);
  EXPECT_EQ(again.tokens(), 70);
  EXPECT_FALSE(again.complete());
  EXPECT_EQ(again.manifest().identity, manifest.identity);
  std::filesystem::remove(folder.file("00000000.seg"));
  EXPECT_THROW(Journal(folder.path()), Error);
}

}  // namespace
}  // namespace qkscope
