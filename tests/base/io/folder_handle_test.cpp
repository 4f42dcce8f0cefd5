#include <filesystem>

#include <gtest/gtest.h>

#include "base/core/error.h"
#include "base/io/folder.h"
#include "base/io/output_file.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

namespace fs = std::filesystem;

TEST(FolderHandle, RemoveTreeDoesNotFollowLinks) {
  const TemporaryFolder folder;
  make_folders(folder.file("mine/inner"));
  make_folders(folder.file("others"));
  write_file(folder.file("others/precious"), "theirs");
  write_file(folder.file("mine/inner/file"), "mine");
  fs::create_directory_symlink(folder.file("others"), folder.file("mine/inner/link"));
  fs::create_symlink(folder.file("others/precious"), folder.file("mine/link"));
  const FolderHandle open(folder.path());
  EXPECT_EQ(open.entry_names(), (std::vector<std::string>{"mine", "others"}));
  EXPECT_FALSE(open.remove_empty_folder("mine"));
  open.remove_tree("mine");
  open.remove_tree("mine");
  EXPECT_FALSE(open.has_entry("mine"));
  EXPECT_TRUE(fs::exists(folder.file("others/precious")));
}

TEST(FolderHandle, LinksAreNotFollowed) {
  const TemporaryFolder folder;
  make_folders(folder.file("others"));
  fs::create_directory_symlink(folder.file("others"), folder.file("link"));
  const FolderHandle open(folder.path());
  EXPECT_TRUE(open.has_link("link"));
  EXPECT_FALSE(open.has_folder("link"));
  for (const auto& attempt : {0, 1}) try {
      attempt == 0 ? open.open_subfolder("link") : open.make_folder("link");
      FAIL() << "a link was followed";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_input);
      EXPECT_NE(std::string(error.what()).find("link: is a link"), std::string::npos);
    }
}

TEST(FolderHandle, MovesFilesBetweenFolders) {
  const TemporaryFolder folder;
  const FolderHandle open(folder.path());
  const auto from = open.make_folder("from");
  const auto to = open.make_folder("to");
  write_file(folder.file("from/file"), "new");
  write_file(folder.file("to/file"), "old");
  from.move_file("file", to);
  to.sync();
  EXPECT_FALSE(from.has_entry("file"));
  EXPECT_EQ(fs::file_size(folder.file("to/file")), 3u);
  EXPECT_TRUE(open.remove_empty_folder("from"));
}

TEST(MakeFolders, ReturnsTheOutermostFolderCreated) {
  const TemporaryFolder folder;
  EXPECT_EQ(make_folders(folder.file("a/b/c")), folder.file("a"));
  EXPECT_EQ(make_folders(folder.file("a/b/c")), "");
  EXPECT_EQ(make_folders(folder.file("a/b/d/")), folder.file("a/b/d"));
  write_file(folder.file("file"), "");
  EXPECT_THROW(make_folders(folder.file("file/x")), Error);
}

TEST(FileLock, CreatesItsFolderAndRefusesLinks) {
  const TemporaryFolder folder;
  const FileLock lock(folder.file("made/lock"), FileLock::LockMode::shared, FileLock::Blocking::no);
  EXPECT_TRUE(lock.is_held());
  EXPECT_TRUE(lock.try_upgrade_to_exclusive());
  fs::create_symlink(folder.file("elsewhere"), folder.file("link"));
  EXPECT_THROW(FileLock(folder.file("link"), FileLock::LockMode::shared, FileLock::Blocking::no),
               Error);
  EXPECT_FALSE(fs::exists(folder.file("elsewhere")));
}

}  // namespace
}  // namespace qkscope
