// Runs that are killed, interrupted, starved of disk or doubled.
#include <csignal>
#include <random>
#include <thread>

#include <sys/mount.h>

#include "capture_fixture.h"

namespace qkscope {
namespace {

using Clock = std::chrono::steady_clock;

class CaptureCrash : public CaptureFixture {};

// With files that are made after the run, and with files that are made ahead.
class CaptureEnded : public CaptureFixture, public testing::WithParamInterface<bool> {
 protected:
  static std::string ahead() { return GetParam() ? "--set output.assemble_ahead=true" : ""; }
};

TEST_P(CaptureEnded, KilledAtAnyMomentItContinuesToTheSameBytes) {
  write_documents(file("docs.jsonl"), kSanitized ? 100 : 200, 30);
  const auto before = Clock::now();
  ASSERT_EQ(capture("expected").status, 0);
  const auto duration =
      std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - before);
  const auto expected = contents("expected");
  std::mt19937 random(7);
  const int kills_wanted = kSanitized ? 8 : 60;
  int kills = 0;
  int finished = 0;
  int resumed = 0;
  while (kills < kills_wanted || finished == 0) {
    const bool anew = !std::filesystem::exists(file("out"));
    const pid_t child = start_program(command("out", ahead()), file("err"));
    if (kills < kills_wanted) std::this_thread::sleep_for(duration * (random() % 1000) / 1600);
    ::kill(child, kills < kills_wanted ? SIGKILL : 0);
    const int status = wait_for_program(child);
    if (WIFSIGNALED(status)) {
      ++kills;
      continue;
    }
    ASSERT_EQ(WEXITSTATUS(status), 0) << MappedFile(file("err")).text();
    expect_same("out", expected);
    resumed += !anew;
    ++finished;
    std::filesystem::remove_all(file("out"));
  }
  EXPECT_GT(resumed, 0);
  fmt::print("{} kills, {} runs finished, {} of them resumed\n", kills, finished, resumed);
}

class CaptureSignal : public CaptureFixture, public testing::WithParamInterface<int> {};

TEST_P(CaptureSignal, FinishesTheExampleAndSaysHowToContinue) {
  const int signal = GetParam();
  write_documents(file("docs.jsonl"), 3000, 60);
  const pid_t child = start_program(
      fmt::format("sniff-qk --config {} --set output.data_root={}", file("run.yaml"), file("out")),
      file("err"));
  const auto part = file("out/.parts/00000-of-00001/journal.jsonl");
  for (int i = 0; i < 3000 && !std::filesystem::exists(part); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  ::kill(child, signal);
  const int status = wait_for_program(child);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal) << status;
  const auto said = std::string(MappedFile(file("err")).text());
  EXPECT_NE(said.find("run the same command to continue"), std::string::npos) << said;
  EXPECT_FALSE(std::filesystem::exists(file("out/_saver_state.json")));
  EXPECT_GT(std::filesystem::file_size(part), 0u);
  for (const auto& [name, content] : contents("out"))
    EXPECT_EQ(name.find(".tmp"), std::string::npos) << name;
}

INSTANTIATE_TEST_SUITE_P(All, CaptureSignal, testing::Values(SIGINT, SIGTERM, SIGHUP, SIGUSR1));

// The lock is there until there is nothing left to protect: of two runs that begin anew at the same
// time one is refused or comes after the other, and the capture is whole in the end.
TEST_F(CaptureCrash, TwoRunsThatBeginAnewLeaveAWholeCapture) {
  write_documents(file("docs.jsonl"), 3, 5);
  ASSERT_EQ(capture("expected").status, 0);
  const auto expected = contents("expected");
  for (int round = 0; round < (kSanitized ? 3 : 25); ++round) {
    const pid_t one = start_program(command("out", "--overwrite"), file("one"));
    std::this_thread::sleep_for(std::chrono::milliseconds(round % 5));
    const pid_t two = start_program(command("out", "--overwrite"), file("two"));
    const int first = wait_for_program(one);
    const int second = wait_for_program(two);
    EXPECT_TRUE(first == 0 || second == 0) << MappedFile(file("one")).text();
    for (const int status : {first, second})
      EXPECT_TRUE(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 2));
    expect_same("out", expected);
    if (HasFailure()) break;
  }
}

TEST_F(CaptureCrash, ASecondRunIntoTheFolderIsRefused) {
  write_documents(file("docs.jsonl"), 3000, 60);
  const pid_t child = start_program(command("out"), file("err"));
  const auto part = file("out/.parts/00000-of-00001/manifest.json");
  for (int i = 0; i < 3000 && !std::filesystem::exists(part); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  const auto second = capture("out");
  const auto overwriting = capture("out", "--overwrite");
  ::kill(child, SIGKILL);
  wait_for_program(child);
  EXPECT_EQ(second.status, 2);
  EXPECT_NE(second.err.find("another capture is running into this folder"), std::string::npos)
      << second.err;
  EXPECT_EQ(overwriting.status, 2);
}

TEST_F(CaptureCrash, ATornJournalLineDoesNotCount) {
  ASSERT_EQ(capture("expected").status, 0);
  ASSERT_EQ(capture("out", "--shard 0/2").status, 0);
  ASSERT_EQ(capture("out", "--shard 1/2").status, 0);
  const auto folder = file("out/.parts/00001-of-00002/");
  const auto text = std::string(MappedFile(folder + "journal.jsonl").text());
  write_text(folder + "journal.jsonl", text.substr(0, text.rfind('\n', text.size() - 2) + 5));
  write_text(folder + "00000007.seg", "left behind");
  const auto merged = run_program("qkscope merge " + file("out"));
  EXPECT_EQ(merged.status, 2);
  EXPECT_NE(merged.err.find("1/2 (unfinished, 20 examples)"), std::string::npos) << merged.err;
  ASSERT_EQ(capture("out", "--shard 1/2").status, 0);
  ASSERT_EQ(run_program("qkscope merge --quiet " + file("out")).status, 0);
  expect_same("out", contents("expected"));
}

TEST_F(CaptureCrash, ADamagedPartIsNotUsed) {
  ASSERT_EQ(capture("out", "--shard 0/2").status, 0);
  ASSERT_EQ(capture("out", "--shard 1/2").status, 0);
  write_text(file("out/.parts/00001-of-00002/00000000.seg"), "short");
  const auto merged = run_program("qkscope merge " + file("out"));
  EXPECT_EQ(merged.status, 2);
  EXPECT_NE(merged.err.find("damaged"), std::string::npos) << merged.err;
  EXPECT_FALSE(std::filesystem::exists(file("out/_saver_state.json")));
  EXPECT_FALSE(std::filesystem::exists(file("out/l00h00q")));
}

// A small file system of its own, where the system lets us mount one.
class SmallDisk {
 public:
  SmallDisk(const std::string& path, const std::string& options, unsigned long flags)
      : path_(path) {
    std::filesystem::create_directories(path);
    mounted_ = ::mount("tmpfs", path.c_str(), "tmpfs", flags, options.c_str()) == 0;
  }
  ~SmallDisk() {
    if (mounted_) ::umount(path_.c_str());
  }
  bool mounted() const { return mounted_; }
  bool grow(const std::string& options) const {
    return ::mount("tmpfs", path_.c_str(), "tmpfs", MS_REMOUNT, options.c_str()) == 0;
  }

 private:
  std::string path_;
  bool mounted_;
};

TEST_P(CaptureEnded, AFullDiskIsAFailureThatCanBeContinued) {
  ASSERT_EQ(capture("expected").status, 0);
  const SmallDisk disk(file("disk"), "size=200k", 0);
  if (!disk.mounted()) GTEST_SKIP() << "mounting a small tmpfs needs root";
  const auto full = capture("disk/out", ahead());
  EXPECT_EQ(full.status, 1);
  EXPECT_NE(full.err.find("No space left on device"), std::string::npos) << full.err;
  EXPECT_NE(full.err.find(file("disk/out")), std::string::npos) << full.err;
  EXPECT_FALSE(std::filesystem::exists(file("disk/out/_saver_state.json")));
  ASSERT_TRUE(disk.grow("size=64m"));
  const auto more = capture("disk/out", ahead());
  ASSERT_EQ(more.status, 0) << more.err;
  expect_same("disk/out", contents("expected"));
}

INSTANTIATE_TEST_SUITE_P(Both, CaptureEnded, testing::Bool());

TEST_F(CaptureCrash, AReadOnlyFolderIsRefusedInASentence) {
  const SmallDisk disk(file("disk"), "size=1m", MS_RDONLY);
  if (!disk.mounted()) GTEST_SKIP() << "mounting a read-only tmpfs needs root";
  const auto outcome = capture("disk/out");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(outcome.err.find("Read-only file system"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find(file("disk/out")), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace qkscope
