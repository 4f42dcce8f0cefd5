// Segments, manifests and journals.
#include "capture/format/segment.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/core/error.h"
#include "base/io/mapped_file.h"
#include "base/io/output_file.h"
#include "capture/folders_in_memory.h"
#include "capture/format/journal.h"
#include "capture/format/layout.h"
#include "capture/verify_part.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;  // without fsync
}

using testing::ElementsAre;

class SegmentFile : private FoldersInMemory, public testing::Test {
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
  const auto table = reader.read_example_table();
  ASSERT_EQ(table.size(), 2u);
  EXPECT_EQ(table[0].row, 4);
  EXPECT_EQ(table[0].key, -1);
  EXPECT_EQ(table[0].source_id, "first");
  EXPECT_TRUE(table[1].truncated);
  std::uint64_t offset = 0;
  EXPECT_EQ(reader.read_example(offset).source_id, "first");
  EXPECT_EQ(reader.read_example(offset).row, 7);
  EXPECT_THROW(reader.read_example(offset), Error);  // only two examples exist
  const auto index = reader.read_block_index(1);
  EXPECT_EQ(index[0].rows, 0u);
  EXPECT_EQ(index[1].example_key, (std::int64_t{1} << 40) + 3);
  CapturedRows block;
  reader.read_block(index[1], {.first = 1}, 2, block);
  EXPECT_THAT(block.positions, ElementsAre(2, 5));
  EXPECT_THAT(block.token_strings, ElementsAre("Ġa", ""));
  EXPECT_THAT(block.vectors, ElementsAre(5, 6, 7, 8));
  reader.read_block(index[1], {.first = 0, .count = 2}, 2, block);
  EXPECT_THAT(block.vectors, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  reader.read_block(index[0], {.first = 1}, 2, block);
  EXPECT_TRUE(block.positions.empty() && block.vectors.empty());
}

TEST_F(SegmentFile, ReadsIdsOfAnyLength) {
  const std::string id(1000, 'x');
  {
    SegmentWriter writer(path(), kGroups);
    writer.add_example({.row = 0, .source_id = id});
    writer.add_example({.row = 1, .source_id = "after"});
    writer.commit();
  }
  const SegmentReader reader(path(), kGroups);
  std::uint64_t offset = 0;
  EXPECT_EQ(reader.read_example(offset).source_id, id);
  EXPECT_EQ(reader.read_example(offset).source_id, "after");
}

TEST_F(SegmentFile, AppearsOnlyAfterCommit) {
  {
    SegmentWriter writer(path(), kGroups);
    writer.add_example({});
    EXPECT_FALSE(std::filesystem::exists(path()));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(SegmentFile, RefusesAFileTruncatedAtAnyByte) {
  write();
  const auto whole = std::string(MappedFile(path()).text());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    write_file(path(), whole.substr(0, size));
    EXPECT_THROW(SegmentReader(path(), kGroups), Error) << size;
  }
  write_file(path(), whole);
  EXPECT_THROW(SegmentReader(path(), kGroups + 1), Error);
}

TEST_F(SegmentFile, ClosesARefusedFile) {
  write_text(path(), "x");
  const auto open_files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  const auto before = open_files();
  EXPECT_THROW(SegmentReader(path(), kGroups), Error);
  EXPECT_EQ(open_files(), before);
}

TEST_F(SegmentFile, DetectsEveryFlippedBit) {
  write();
  const auto whole = std::string(MappedFile(path()).text());
  for (std::size_t at = 0; at < 8 * whole.size(); ++at) {
    auto damaged = whole;
    damaged[at / 8] = static_cast<char>(damaged[at / 8] ^ (1 << at % 8));
    write_text(path(), damaged);
    EXPECT_THROW(SegmentReader(path(), kGroups).verify_checksums(), Error) << at;
  }
  write_text(path(), whole);
  EXPECT_NO_THROW(SegmentReader(path(), kGroups).verify_checksums());
}

Manifest small_manifest() {
  Manifest manifest;
  manifest.identity = {{"a", 1}};
  manifest.head_dim = 2;
  manifest.row_group_size = 10;
  manifest.groups.push_back(
      {.layer = 0, .heads = {0, 1}, .window = {}, .rope = "", .rope_inv_freq = ""});
  return manifest;
}

TEST(ManifestFile, RefusesValuesOutOfRange) {
  const TemporaryFolder folder;
  const auto refused = [&](const Manifest& manifest) {
    Journal::create(folder.path(), manifest);
    EXPECT_THROW(Journal(folder.path()), Error);
  };
  auto manifest = small_manifest();
  manifest.heads_per_key_head = 0;
  refused(manifest);
  manifest = small_manifest();
  manifest.head_dim = 0;
  refused(manifest);
  manifest = small_manifest();
  manifest.row_group_size = -1;
  refused(manifest);
  manifest = small_manifest();
  manifest.groups.clear();
  refused(manifest);
  for (const auto& identity : {Json(1), Json{{kInputs, 1}}, Json{{kInputs, {{"dataset", 1}}}}}) {
    manifest = small_manifest();
    manifest.identity = identity;
    refused(manifest);
  }
  Journal::create(folder.path(), small_manifest());
  EXPECT_NO_THROW(Journal(folder.path()));
}

TEST(ManifestFile, RefusesFractionsInPlaceOfIntegers) {
  for (const auto& number : {Json(1e300), Json(1.5), Json(std::uint64_t{1} << 63), Json("1")}) {
    for (const auto* name : {"head_dim", "row_group_size"}) {
      auto json = to_json(small_manifest());
      json[name] = number;
      EXPECT_THROW(manifest_from_json(json, "m"), Error) << json;
    }
    auto json = to_json(small_manifest());
    json["groups"][0]["window"] = number;
    EXPECT_THROW(manifest_from_json(json, "m"), Error) << json;
  }
}

TEST(ManifestFile, DetectsAnyChangedByte) {
  const FoldersInMemory memory;
  const TemporaryFolder folder;
  Journal::create(folder.path(), small_manifest());
  const auto path = folder.file(layout::kManifestFile);
  const auto whole = std::string(MappedFile(path).text());
  for (std::size_t at = 0; at < whole.size(); ++at) {
    if (std::isspace(static_cast<unsigned char>(whole[at])))
      continue;  // white space is not significant
    auto damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    write_text(path, damaged);
    EXPECT_THROW(Journal(folder.path()), Error) << at << " " << whole[at];
  }
}

TEST(Journal, RefusesADamagedLineAndIgnoresATornLastLine) {
  const FoldersInMemory memory;
  const TemporaryFolder folder;
  Journal::create(folder.path(), small_manifest());
  {
    Journal journal(folder.path());
    for (std::size_t i = 0; i < 3; ++i) {
      write_text(folder.file(segment_name(i)), "x");
      journal.append_entry({.segment = segment_name(i), .examples = 1, .rows = 1, .tokens = 1});
    }
    journal.mark_complete();
  }
  const auto path = folder.file(layout::kJournalFile);
  const auto whole = std::string(MappedFile(path).text());
  const auto last = whole.rfind('\n', whole.size() - 2) + 1;  // start of the last line
  for (std::size_t at = 0; at + 1 < whole.size(); ++at) {
    auto damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 2);
    write_text(path, damaged);
    if (at + 1 < last)  // without the end of the line before it, the last one is all of both
      EXPECT_THROW(Journal(folder.path()), Error) << at;
    else
      EXPECT_FALSE(Journal(folder.path()).is_complete()) << at;
  }
  const auto line = whole.substr(0, whole.find('\n') + 1);
  write_text(path, line + whole);  // a segment listed twice
  EXPECT_THROW(Journal(folder.path()), Error);
  write_text(path, whole.substr(line.size()));  // a missing segment
  EXPECT_THROW(Journal(folder.path()), Error);
}

TEST(Journal, SumsTheCountsOfItsEntries) {
  const TemporaryFolder folder;
  const auto manifest = small_manifest();
  EXPECT_FALSE(Journal::exists(folder.path()));
  Journal::create(folder.path(), manifest);
  Journal journal(folder.path());
  write_file(folder.file("00000000.seg"), "x");
  write_file(folder.file("stray.seg.12.tmp"), "x");
  journal.append_entry({.segment = segment_name(0), .examples = 3, .rows = 5, .tokens = 70});
  journal.remove_unlisted_files();
  EXPECT_FALSE(std::filesystem::exists(folder.file("stray.seg.12.tmp")));
  EXPECT_EQ(segment_name(1), "00000001.seg");
  const Journal again(folder.path());
  EXPECT_EQ(again.example_count(), 3);
  EXPECT_EQ(again.row_count(), 5);
  EXPECT_EQ(again.token_count(), 70);
  EXPECT_FALSE(again.is_complete());
  EXPECT_EQ(again.manifest().identity, manifest.identity);
  std::filesystem::remove(folder.file("00000000.seg"));
  EXPECT_THROW(Journal(folder.path()), Error);
}

TEST(Journal, RefusesCountsOutOfRange) {
  for (const std::int64_t count : {std::int64_t{-1}, std::numeric_limits<std::int64_t>::max()}) {
    const TemporaryFolder folder;
    Journal::create(folder.path(), small_manifest());
    Journal journal(folder.path());
    for (std::size_t i = 0; i < 2; ++i) {
      write_text(folder.file(segment_name(i)), "x");
      journal.append_entry({.segment = segment_name(i), .examples = count, .rows = 1, .tokens = 1});
    }
    EXPECT_THROW(Journal(folder.path()), Error) << count;
  }
}

// A consistent part with one segment, one example and one row.
class PartOfOneRow : public testing::Test {
 protected:
  void write(std::int32_t tokens, std::span<const std::string_view> token_strings) {
    auto manifest = small_manifest();
    manifest.token_strings = true;
    Journal::create(folder_.path(), manifest);
    SegmentWriter writer(folder_.file(segment_name(0)), manifest.groups.size());
    writer.add_example({.row = 4, .key = 1, .source_id = "a", .tokens = tokens});
    const std::vector<std::int32_t> positions = {2};
    writer.add_block(0, 0, positions, token_strings, Tensor({1, 2, 2}));
    Journal(folder_.path())
        .append_entry({.segment = segment_name(0),
                       .examples = 1,
                       .rows = 2,
                       .tokens = tokens,
                       .checksum = writer.commit()});
  }

  TemporaryFolder folder_;
};

TEST_F(PartOfOneRow, PassesTheCheckWhenConsistent) {
  write(3, std::vector<std::string_view>{"a"});
  EXPECT_NO_THROW(verify_part(Journal(folder_.path())));
}

TEST_F(PartOfOneRow, IsRefusedWithoutTokenStrings) {
  write(3, {});
  EXPECT_THROW(verify_part(Journal(folder_.path())), Error);
}

TEST_F(PartOfOneRow, IsRefusedWithMoreRowsThanTokens) {
  write(0, std::vector<std::string_view>{"a"});
  EXPECT_THROW(verify_part(Journal(folder_.path())), Error);
}

}  // namespace
}  // namespace qkscope
