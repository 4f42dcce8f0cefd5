#include "base/io/file_list.h"

#include <filesystem>
#include <regex>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/core/error.h"
#include "base/io/output_file.h"
#include "error_message.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

using testing::HasSubstr;

class FileListTest : public testing::Test {
 protected:
  FileListTest() {
    std::filesystem::create_directory(folder_.file("columns"));
    write_file(folder_.file("columns/a.parquet"), "vectors");
    write_file(folder_.file("sums"), std::string(1000, 'x'));
  }

  TemporaryFolder folder_;
};

TEST_F(FileListTest, SurvivesJson) {
  const FileList files = make_file_list(folder_.path());
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files.at("columns/a.parquet").size, 7u);
  const auto read = parse_file_list(Json{{"files", to_json(files)}}, "state.json");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->at("sums").checksum, files.at("sums").checksum);
  for (const auto& [name, record] : *read)
    EXPECT_NO_THROW(check_file_content(folder_.path(), name, record, ""));
}

TEST_F(FileListTest, AMissingListIsNotADamagedOne) {
  EXPECT_FALSE(parse_file_list(Json::object(), "state.json"));
  for (const Json& files : {Json(7), Json{{"sums", "x"}}, Json{{"sums", {{"bytes", -1}}}}})
    EXPECT_THAT(bad_input_message([&] {
                  parse_file_list(Json{{"files", files}}, "state.json");
                }),
                HasSubstr("state.json: the list of files is damaged"));
}

TEST_F(FileListTest, AcceptsSizesWithoutChecksums) {
  const auto files = parse_file_list(Json{{"files", {{"sums", 1000}}}}, "state.json");
  ASSERT_TRUE(files);
  EXPECT_NO_THROW(check_file_content(folder_.path(), "sums", files->at("sums"), ""));
}

TEST_F(FileListTest, NamesMissingTruncatedAndDamagedFiles) {
  const FileList files = make_file_list(folder_.path());
  const auto check = [&] {
    return bad_input_message([&] {
      check_file_sizes(folder_.path(), files, "make it again");
      check_file_content(folder_.path(), "sums", files.at("sums"), "make it again");
    });
  };
  write_file(folder_.file("sums"), std::string(999, 'x') + "y");
  EXPECT_THAT(check(), HasSubstr("sums: damaged: its checksum differs"));
  write_file(folder_.file("sums"), "x");
  EXPECT_THAT(check(), HasSubstr("sums: has 1 bytes, expected 1000; make it again"));
  std::filesystem::remove(folder_.file("columns/a.parquet"));
  EXPECT_THAT(check(), HasSubstr("a.parquet: is missing; make it again"));
}

TEST_F(FileListTest, ASnapshotNoticesReplacedAndRemovedFiles) {
  FileSnapshot files;
  files.add(folder_.file("sums"));
  EXPECT_NO_THROW(files.check_unchanged());
  write_file(folder_.file("sums"), std::string(1000, 'x'));  // same content, new file
  EXPECT_THAT(bad_input_message([&] { files.check_unchanged(); }),
              HasSubstr("sums: changed while it was read"));
  FileSnapshot missing;
  missing.add(folder_.file("none"));
  EXPECT_NO_THROW(missing.check_unchanged());
  write_file(folder_.file("none"), "");
  EXPECT_THROW(missing.check_unchanged(), Error);
}

// Process ids are equal in different containers, so names must not depend on them.
TEST(TemporaryPath, IsRandom) {
  std::set<std::string> names;
  for (int i = 0; i < 1000; ++i) names.insert(temporary_path("out.txt"));
  EXPECT_EQ(names.size(), 1000u);
  EXPECT_TRUE(std::regex_match(*names.begin(), std::regex(R"(out\.txt\.[0-9a-f]{16}\.tmp)")));
}

// Makes flock() fail with `error` for the rest of the process.
void refuse_flock(int error) {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_flock, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {std::size(filter), filter};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
    std::_Exit(9);
}

TEST(FileLock, AFileSystemWithoutLocksIsNotABusyOne) {
  const TemporaryFolder folder;
  const auto lock = [&](int error, FileLock::Blocking blocking) {
    refuse_flock(error);
    try {
      const FileLock held(folder.file("lock"), FileLock::LockMode::exclusive, blocking);
      std::_Exit(held.is_held() ? 3 : 4);
    } catch (const Error& refused) {
      std::fputs(refused.what(), stderr);
      std::_Exit(refused.exit_code());
    }
  };
  for (const int error : {ENOSYS, ENOLCK, EOPNOTSUPP, EIO})
    for (const auto blocking : {FileLock::Blocking::no, FileLock::Blocking::yes})
      EXPECT_EXIT(lock(error, blocking), testing::ExitedWithCode(1),
                  "lock: cannot lock: .*NO_LOCK=1");
  EXPECT_EXIT(lock(EWOULDBLOCK, FileLock::Blocking::no), testing::ExitedWithCode(4), "");
  EXPECT_EXIT(
      {
        ::setenv("QKSCOPE_NO_LOCK", "1", 1);
        lock(ENOSYS, FileLock::Blocking::no);
      },
      testing::ExitedWithCode(3), "");
}

}  // namespace
}  // namespace qkscope
