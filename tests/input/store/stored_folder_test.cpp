// Folders that are published atomically by a manifest.
#include "input/store/stored_folder.h"

#include <gmock/gmock.h>

#include "base/io/folder.h"
#include "error_message.h"
#include "qkscope/experimental/text.h"
#include "test_store.h"

namespace qkscope {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class StoredFolders : public testing::Test {
 protected:
  // Creates a local folder with a top-level file, a nested file and hidden working files.
  std::string local(const std::string& content) {
    auto folder = place_.file("local");
    make_folders(folder + "/below");
    make_folders(folder + "/.parts");
    write_file(folder + "/top", content);
    write_file(folder + "/below/file", content + content);
    write_file(folder + "/.parts/working", "x");
    return folder;
  }
  StoredFolder open() const { return StoredFolder(place_.address()); }

  TestStore place_;
};

TEST_F(StoredFolders, BecomeVisibleWithTheManifest) {
  EXPECT_FALSE(open().is_published());
  auto writer = open();
  writer.publish(local("abc"), "results", "run", true);
  const auto reader = open();
  ASSERT_TRUE(reader.is_published());
  EXPECT_EQ(reader.manifest().kind, "results");
  EXPECT_THAT(reader.file_names(), ElementsAre("below/file", "top"));
  reader.fetch_files({"top", "not there"}, true);
  EXPECT_EQ(read_text_file(reader.local_folder() + "/top"), "abc");
  EXPECT_FALSE(path_exists(reader.local_folder() + "/below/file"));
  reader.fetch_all_files(true);
  EXPECT_EQ(read_text_file(reader.local_folder() + "/below/file"), "abcabc");
}

TEST_F(StoredFolders, ExactlyOneOfTwoWritersWins) {
  auto one = open();
  auto two = open();
  one.publish(local("abc"), "results", "one", true);
  EXPECT_THAT(bad_input_message([&] { two.publish(local("other"), "results", "two", true); }),
              HasSubstr("another writer put its results there in the meantime"));
  EXPECT_EQ(open().manifest().run, "one");
  auto same = open();
  auto again = open();
  same.publish(local("abc"), "results", "same", true);
  again.publish(local("abc"), "results", "again", true);  // identical bytes: nothing is lost
  EXPECT_EQ(open().manifest().run, "same");
}

TEST_F(StoredFolders, ReferenceFilesAlreadyInTheStore) {
  const auto folder = local("abc");
  const auto inner = place_.address().child("inner");
  StoredFolder(inner).publish(folder, "results", "run", true);
  auto file = StoredFolder(inner).manifest().files.back();
  EXPECT_EQ(file.name, "top");
  file.name = "inner/top";
  file.object = "inner/" + file.object;
  const FolderUpload upload{.folder = folder,
                            .kind = "sweep",
                            .run = "first",
                            .quiet = true,
                            .without = "below",
                            .in_store = {file}};
  EXPECT_TRUE(open().try_publish(upload));
  const auto reader = open();
  EXPECT_THAT(reader.file_names(), ElementsAre("inner/top", "top"));
  reader.fetch_all_files(true);
  EXPECT_EQ(read_text_file(reader.local_folder() + "/inner/top"), "abc");
  // Unchanged files: nothing is uploaded.
  auto same = upload;
  same.run = "second";
  same.in_store = reader.manifest().files;
  EXPECT_TRUE(open().try_publish(same));
  EXPECT_EQ(open().manifest().run, "first");
  // Another writer published first.
  auto late = open();
  open().publish(folder, "sweep", "third", true);
  EXPECT_FALSE(late.try_publish(upload));
}

TEST_F(StoredFolders, AReplacedFolderStaysReadable) {
  open().publish(local("old"), "results", "run", true);
  const auto reader = open();
  open().publish(local("new"), "results", "run", true);
  reader.fetch_files({"top"}, true);
  EXPECT_EQ(read_text_file(reader.local_folder() + "/top"), "old");
  const auto now = open();
  now.fetch_files({"top"}, true);
  EXPECT_EQ(read_text_file(now.local_folder() + "/top"), "new");
  auto one = open();
  auto two = open();
  one.mark_removed("run");
  two.mark_removed("run");  // the second writer finds the folder removed
  EXPECT_FALSE(open().is_published());
}

TEST_F(StoredFolders, ATruncatedObjectIsRejected) {
  open().publish(local("abc"), "results", "run", true);
  const auto reader = open();
  write_file(place_.file("cut"), "ab");
  reader.object_store().put(reader.manifest().find_file("top")->object, place_.file("cut"));
  EXPECT_THAT(bad_input_message([&] { reader.fetch_all_files(true); }),
              HasSubstr("top: is damaged"));
  EXPECT_FALSE(path_exists(reader.local_folder() + "/top"));
}

TEST_F(StoredFolders, ForeignManifestsAreRejected) {
  const auto where = [&](const std::string& text) {
    return bad_input_message([&] { parse_manifest(text, "m"); });
  };
  EXPECT_THAT(where("{}"), HasSubstr("m: is no manifest"));
  EXPECT_THAT(where("nonsense"), HasSubstr("m"));
  StoredManifest outside{.kind = "results", .run = "", .files = {{"../x", "files/x", {}}}};
  EXPECT_THAT(where(serialize_manifest(outside)), HasSubstr("outside of the folder"));
  auto text = serialize_manifest({.kind = "results", .run = "", .files = {}});
  text.replace(text.find("results"), 7, "capture");
  EXPECT_THAT(where(text), HasSubstr("its checksum is another"));
}

}  // namespace
}  // namespace qkscope
