#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/core/error.h"
#include "base/io/folder.h"
#include "base/io/mapped_file.h"
#include "base/io/output_file.h"
#include "error_message.h"
#include "qkscope/experimental/text.h"
#include "sanitized.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

TEST(MappedFile, ATruncatedFileIsNamedOnSigbus) {
  const TemporaryFolder folder;
  const auto path = folder.file("weights.bin");
  write_file(path, std::string(1 << 20, 'x'));
  EXPECT_EXIT(
      {
        report_truncated_mappings();
        const MappedFile file(path);
        if (::truncate(path.c_str(), 4096) != 0) std::exit(5);
        int sum = 0;
        for (const char c : file.text()) sum += c;
        std::exit(sum == 0 ? 3 : 4);
      },
      testing::ExitedWithCode(1), "weights.bin: the file was cut");
}

// Several threads that read the file at once report it once.
TEST(MappedFile, ATruncatedFileIsReportedOnce) {
  const TemporaryFolder folder;
  const auto path = folder.file("weights.bin");
  write_file(path, std::string(1 << 20, 'x'));
  EXPECT_EXIT(
      {
        report_truncated_mappings();
        const MappedFile file(path);
        if (::truncate(path.c_str(), 4096) != 0) std::exit(5);
        std::atomic<int> ready = 0;
        std::vector<std::thread> threads;
        for (int i = 0; i < 8; ++i)
          threads.emplace_back([&] {
            for (++ready; ready < 8;) continue;
            std::exit(file.text()[1 << 19] == 'x' ? 3 : 4);
          });
        for (auto& thread : threads) thread.join();
      },
      testing::ExitedWithCode(1), "^error: [^\n]*weights.bin: the file was cut[^\n]*\n$");
}

// A SIGBUS outside of mapped files ends the process as without a handler.
TEST(MappedFile, OtherMappingsKeepTheirSignal) {
  const TemporaryFolder folder;
  const auto path = folder.file("other");
  write_file(path, std::string(1 << 16, 'x'));
  write_file(folder.file("weights.bin"), "weights");
  EXPECT_EXIT(
      {
        report_truncated_mappings();
        const MappedFile file(folder.file("weights.bin"));
        const int other = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
        auto* bytes = static_cast<char*>(::mmap(nullptr, 1 << 16, PROT_READ, MAP_SHARED, other, 0));
        if (::truncate(path.c_str(), 0) != 0) std::exit(5);
        std::exit(static_cast<volatile char*>(bytes)[1 << 15]);
      },
      testing::KilledBySignal(SIGBUS), "");
}

TEST(MappedFile, MoreFilesThanTheTableOfNamesAreMapped) {
  const TemporaryFolder folder;
  write_file(folder.file("one"), "1");
  std::vector<MappedFile> files;
  for (int i = 0; i < 1100; ++i) files.emplace_back(folder.file("one"));
  EXPECT_EQ(files.front().text(), "1");
  EXPECT_EQ(files.back().text(), "1");
  files.front() = std::move(files.back());
  EXPECT_EQ(files.front().text(), "1");
}

TEST(MappedFile, ErrorsOfTheSystemAreReported) {
  const TemporaryFolder folder;
  const auto path = folder.file("large");
  EXPECT_NE(bad_input_message([&] { MappedFile file(path); }).find("No such file"),
            std::string::npos);
  write_file(path, "");
  EXPECT_EQ(MappedFile(path).text(), "");
  if (kSanitized) return;                                       // address space is theirs
  std::filesystem::resize_file(path, std::uintmax_t{1} << 40);  // sparse
  EXPECT_EXIT(
      {
        rlimit little = {};
        little.rlim_cur = little.rlim_max = 1 << 30;
        ::setrlimit(RLIMIT_AS, &little);
        try {
          const MappedFile file(path);
        } catch (const Error& error) {
          std::fprintf(stderr, "%s", error.what());
          std::exit(error.kind() == ErrorKind::failure ? 1 : 2);
        }
      },
      testing::ExitedWithCode(1), "large.*Cannot allocate memory");
}

TEST(MappedFile, PipesAndFoldersAreRefused) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo(folder.file("pipe").c_str(), 0600), 0);
  EXPECT_NE(bad_input_message([&] { MappedFile(folder.file("pipe")); }).find("not a regular file"),
            std::string::npos);
  EXPECT_NE(bad_input_message([&] { MappedFile(folder.path()); }).find("a folder"),
            std::string::npos);
}

TEST(OutputFile, AppearsOnlyWhenCommitted) {
  const TemporaryFolder folder;
  const auto path = folder.file("out.txt");
  {
    OutputFile file(path);
    file.write("half");
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  write_file(path, "whole");
  EXPECT_EQ(MappedFile(path).text(), "whole");
}

TEST(OutputFile, LeftoversOfKilledProcessesAreRemoved) {
  const TemporaryFolder folder;
  const auto path = folder.file("out.txt");
  const auto names = [&] { return entry_names(folder.path()); };
  const pid_t child = ::fork();
  if (child == 0) {
    OutputFile file(path);
    ::_exit(0);  // without the destructor, as after SIGKILL
  }
  ::waitpid(child, nullptr, 0);
  ASSERT_EQ(names().size(), 1U);
  write_file(folder.file("out.txt.mine.tmp"), "of the user");
  OutputFile running(path);  // of this process, which still writes
  EXPECT_EQ(names().size(), 2U)
      << "the leftover is gone, the running file and that of the user stay";
  write_file(path, "whole");
  EXPECT_EQ(names().size(), 3U);
  running.write("later");
  running.commit();
  EXPECT_EQ(names(), (std::vector<std::string>{"out.txt", "out.txt.mine.tmp"}));
}

// Threads that download the same file write to the same path at the same time.
TEST(OutputFile, ConcurrentWritersDoNotInterfere) {
  const TemporaryFolder folder;
  const auto path = folder.file("x");
  OutputFile first(path);
  OutputFile second(path);
  first.write("one");
  second.write("two");
  first.commit();
  second.commit();
  EXPECT_EQ(MappedFile(path).text(), "two");
  EXPECT_EQ(entry_names(folder.path()), std::vector<std::string>{"x"});
}

TEST(OutputFile, MissingFolderIsNamed) {
  try {
    OutputFile file("no/such/folder/x.txt");
    FAIL() << "a file in a missing folder was opened";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
    EXPECT_NE(std::string(error.what()).find("no/such/folder"), std::string::npos);
  }
}

TEST(SystemError, FullDiskIsAFailureMissingFileIsBadInput) {
  const auto kind = [](int error) {
    try {
      throw_system_error("write", "x", error);
    } catch (const Error& thrown) {
      return thrown.kind();
    }
  };
  EXPECT_EQ(kind(ENOSPC), ErrorKind::failure);
  EXPECT_EQ(kind(ENOENT), ErrorKind::bad_input);
  EXPECT_EQ(kind(EACCES), ErrorKind::bad_input);
}

TEST(MappedFile, EmptyFilesAreMappedAndMissingOnesRefused) {
  const TemporaryFolder folder;
  write_file(folder.file("empty"), "");
  EXPECT_EQ(MappedFile(folder.file("empty")).bytes().size(), 0u);
  EXPECT_THROW(MappedFile(folder.path()), Error);
  EXPECT_THROW(MappedFile(folder.file("absent")), Error);
}

TEST(Folder, QueriesDoNotThrow) {
  const TemporaryFolder folder;
  write_file(folder.file("b"), "");
  write_file(folder.file("a"), "");
  EXPECT_EQ(entry_names(folder.path()), (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(is_folder(folder.path()));
  EXPECT_FALSE(is_folder(folder.file("a")));
  EXPECT_TRUE(path_exists(folder.file("a")));
  EXPECT_FALSE(path_exists(folder.file("c")));
  EXPECT_FALSE(path_exists(std::string(5000, 'x')));  // longer than NAME_MAX
  EXPECT_THROW(entry_names(folder.file("c")), Error);
}

TEST(OpenFiles, AnOpenDescriptorReducesTheCount) {
  const auto before = count_free_file_descriptors();
  EXPECT_GT(before, 0u);
  const int file = ::dup(0);
  ASSERT_GE(file, 0);
  EXPECT_EQ(count_free_file_descriptors(), before - 1);
  ::close(file);
  EXPECT_EQ(count_free_file_descriptors(), before);
}

}  // namespace
}  // namespace qkscope
