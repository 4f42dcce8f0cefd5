// Names and hashes of captures. tests/input/hub/captures_test.py covers captures on the Hub.
#include "capture/format/capture_source.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/io/output_file.h"
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
  EXPECT_EQ(source.short_name(), "name@main");
  EXPECT_EQ(source.index().queries.size(), 1u);
}

TEST(CaptureHash, ChangesWithTheCapture) {
  const TemporaryFolder folder;
  const HeadId head{0, 0, HeadKind::query};
  write_head_file(head_file_path(folder.path(), head), one_row(), {});
  const auto first = capture_hash(folder.path());
  EXPECT_EQ(first, capture_hash(folder.path()));
  auto rows = one_row();
  rows.position = {7};
  write_head_file(head_file_path(folder.path(), head), rows, {});
  const auto second = capture_hash(folder.path());
  EXPECT_NE(first, second);
  write_file(folder.file("_saver_state.json"), "{}");
  EXPECT_NE(capture_hash(folder.path()), second);
  EXPECT_EQ(capture_hash(folder.file("none")), "");
}

TEST(ShortName, KeepsIdsAndShortensPaths) {
  EXPECT_EQ(short_name("HuggingFaceTB/SmolLM3-3B"), "HuggingFaceTB/SmolLM3-3B");
  EXPECT_EQ(short_name("org/name@branch"), "org/name@branch");
  EXPECT_EQ(short_name("/data/models/S3-4720/"), "S3-4720");
  EXPECT_EQ(short_name("./S3-4720"), "S3-4720");
  EXPECT_EQ(short_name("../models/S3-4720"), "S3-4720");
  EXPECT_EQ(short_name("share/demo/checkpoints/S3-4720"), "S3-4720");
  EXPECT_EQ(short_name("gpt2"), "gpt2");
  EXPECT_EQ(short_name(""), "");
  EXPECT_EQ(short_name("/"), "");
}

}  // namespace
}  // namespace qkscope
