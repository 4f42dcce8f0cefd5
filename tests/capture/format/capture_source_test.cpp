// Names and hashes of captures. tests/input/hub/captures_test.py covers captures on the Hub.
#include "capture/format/capture_source.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/core/error.h"
#include "base/io/file_list.h"
#include "base/io/mapped_file.h"
#include "base/io/output_file.h"
#include "capture/format/layout.h"
#include "capture/format/metadata.h"
#include "error_message.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

using ::testing::HasSubstr;

TEST(CaptureName, ParsesHubNames) {
  const auto plain = parse_hub_capture_name("org/name@stage1-step-40000");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->repo, "org/name");
  EXPECT_EQ(plain->branch, "stage1-step-40000");
  EXPECT_EQ(plain->folder, "");
  const auto folder = parse_hub_capture_name("org/name@refs/pr/3:org_model");
  ASSERT_TRUE(folder);
  EXPECT_EQ(folder->branch, "refs/pr/3");
  EXPECT_EQ(folder->folder, "org_model");
  for (const auto* path : {"captures/one", "org/name", "missing"})
    EXPECT_FALSE(parse_hub_capture_name(path)) << path;
}

TEST(CaptureName, RefusesMalformedNames) {
  const auto complaint = [](const std::string& name) {
    return bad_input_message([&] { parse_hub_capture_name(name); });
  };
  for (const auto* path : {"/tmp/no@such", "./a@b", "a/b/c@d", "@main", "~/x@y"})
    EXPECT_THAT(complaint(path), HasSubstr("there is no such folder")) << path;
  EXPECT_THAT(complaint("org/name@"), HasSubstr("is no branch"));
  EXPECT_THAT(complaint("org/name@../x"), HasSubstr("is no branch"));
  EXPECT_THAT(complaint("org/name@main:"), HasSubstr("no folder after"));
}

HeadRows one_row() {
  HeadRows rows;
  rows.head_dim = 2;
  rows.bucket = rows.example_id = rows.position = {0};
  rows.vectors = {1, 2};
  return rows;
}

TEST(CaptureName, PrefersAnExistingFolderOverAHubName) {
  const TemporaryFolder folder;
  const auto name = folder.file("name@main");
  write_head_file(head_file_path(name, {0, 0, HeadKind::query}), one_row(), {});
  EXPECT_FALSE(parse_hub_capture_name(name));
  EXPECT_TRUE(names_capture(name));
  EXPECT_TRUE(names_capture("org/name@main"));
  EXPECT_FALSE(names_capture(folder.path() + "/none"));
  EXPECT_FALSE(names_capture("org/name"));
  const CaptureSource source(name);
  EXPECT_EQ(source.display_name(), "name@main");
  EXPECT_EQ(source.capture_index().queries.size(), 1u);
}

// Writes a finished capture with two query heads and one key head.
class WholeCapture : public testing::Test {
 protected:
  WholeCapture() {
    for (const auto& head : heads_) write_head(head, "run 1");
    write_state();
  }
  void write_head(const HeadId& head, const std::string& hash) const {
    write_head_file(head_file_path(folder_.path(), head), one_row(),
                    {{metadata::kLayer, std::to_string(head.layer)},
                     {metadata::kHead, std::to_string(head.head)},
                     {metadata::kKind, std::string(1, static_cast<char>(head.kind))},
                     {metadata::kConfigHash, hash}});
  }
  void write_state() const {
    const Json state = {{metadata::kStateConfigurationHash, "run 1"},
                        {metadata::kStateFiles, to_json(make_file_list(folder_.path()))}};
    write_file(folder_.file("_saver_state.json"), state.dump());
  }
  std::string complaint() const {
    return bad_input_message([&] { index_capture(folder_.path()); });
  }

  TemporaryFolder folder_;
  const std::vector<HeadId> heads_ = {
      {0, 0, HeadKind::query}, {0, 1, HeadKind::query}, {0, 0, HeadKind::key}};
};

TEST_F(WholeCapture, IsIndexed) {
  const auto index = index_capture(folder_.path());
  EXPECT_EQ(index.queries.size(), 2u);
  EXPECT_EQ(index.config_hash, "run 1");
  EXPECT_FALSE(index.partial);
  for (const auto& head : heads_) EXPECT_NO_THROW(read_capture_head(index, head));
}

TEST_F(WholeCapture, AMissingHeadIsRefusedUnlessPartial) {
  std::filesystem::remove_all(folder_.file("l00h01q"));
  EXPECT_THAT(complaint(), HasSubstr("l00h01q/data.parquet is missing; run the capture again, or "
                                     "add --partial"));
  const auto index = index_capture(folder_.path(), true);
  EXPECT_TRUE(index.partial);
  EXPECT_EQ(index.queries.size(), 1u);
}

TEST_F(WholeCapture, AHeadOfAnotherRunIsRefused) {
  write_head({3, 0, HeadKind::query}, "run 2");
  EXPECT_THAT(complaint(), HasSubstr("l03h00q/data.parquet is of another run"));
}

TEST_F(WholeCapture, AFileOfAnotherSizeIsRefused) {
  write_head({0, 1, HeadKind::query}, "a run with a longer name");
  EXPECT_THAT(complaint(), HasSubstr("l00h01q/data.parquet has "));
}

TEST_F(WholeCapture, AFileOfAnotherRunOrHeadIsRefusedWhenRead) {
  write_head({0, 1, HeadKind::query}, "run 2");
  write_state();
  const auto index = index_capture(folder_.path());
  const auto read = [&](const HeadId& head) {
    return bad_input_message([&] { read_capture_head(index, head); });
  };
  EXPECT_THAT(
      read({0, 1, HeadKind::query}),
      HasSubstr("config_hash \"run 2\", expected run 1: the file is of another head or run"));
  std::filesystem::copy_file(folder_.file("l00h00q/data.parquet"),
                             folder_.file("l00h01q/data.parquet"),
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(read({0, 1, HeadKind::query}), HasSubstr("head \"0\", expected 1"));
}

TEST_F(WholeCapture, AnUnfinishedRunIsRefusedUnlessPartial) {
  std::filesystem::remove(folder_.file("_saver_state.json"));
  EXPECT_FALSE(index_capture(folder_.path()).partial);  // of another program
  std::filesystem::create_directory(folder_.file(layout::kPartsFolder));
  EXPECT_THAT(complaint(), HasSubstr("its run has not finished"));
  EXPECT_TRUE(index_capture(folder_.path(), true).partial);
}

// Rows are stored with page checksums, so damage is an error and never another number.
TEST_F(WholeCapture, NoFlippedBitChangesRowsSilently) {
  HeadRows rows;
  rows.head_dim = 16;
  for (int i = 0; i < 64; ++i) {
    rows.bucket.push_back(0);
    rows.example_id.push_back(i / 8);
    rows.position.push_back(i % 8);
    for (int d = 0; d < rows.head_dim; ++d)
      rows.vectors.push_back(static_cast<float>(0.37 * i - 1.7 * d * d));
  }
  const auto path = folder_.file("head.parquet");
  write_head_file(path, rows, {});
  const std::string content(MappedFile(path).text());
  int refused = 0;
  for (std::size_t at = 4; at < content.size(); at += 7) {
    auto damaged = content;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    write_file(path, damaged);
    try {
      const auto read = read_head_file(path).rows;
      EXPECT_EQ(read.vectors, rows.vectors) << "byte " << at;
      EXPECT_EQ(read.position, rows.position) << "byte " << at;
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
}

TEST(CaptureHash, ChangesWithTheCapture) {
  const TemporaryFolder folder;
  const HeadId head{0, 0, HeadKind::query};
  write_head_file(head_file_path(folder.path(), head), one_row(), {});
  const auto first = fingerprint_capture(folder.path());
  EXPECT_EQ(first, fingerprint_capture(folder.path()));
  auto rows = one_row();
  rows.position = {7};
  write_head_file(head_file_path(folder.path(), head), rows, {});
  const auto second = fingerprint_capture(folder.path());
  EXPECT_NE(first, second);
  write_file(folder.file("_saver_state.json"), "{}");
  EXPECT_NE(fingerprint_capture(folder.path()), second);
  EXPECT_EQ(fingerprint_capture(folder.file("none")), "");
}

TEST(ShortName, KeepsIdsAndShortensPaths) {
  EXPECT_EQ(id_or_base_name("HuggingFaceTB/SmolLM3-3B"), "HuggingFaceTB/SmolLM3-3B");
  EXPECT_EQ(id_or_base_name("org/name@branch"), "org/name@branch");
  EXPECT_EQ(id_or_base_name("/data/models/S3-4720/"), "S3-4720");
  EXPECT_EQ(id_or_base_name("./S3-4720"), "S3-4720");
  EXPECT_EQ(id_or_base_name("../models/S3-4720"), "S3-4720");
  EXPECT_EQ(id_or_base_name("share/demo/checkpoints/S3-4720"), "S3-4720");
  EXPECT_EQ(id_or_base_name("gpt2"), "gpt2");
  EXPECT_EQ(id_or_base_name(""), "");
  EXPECT_EQ(id_or_base_name("/"), "");
}

}  // namespace
}  // namespace qkscope
