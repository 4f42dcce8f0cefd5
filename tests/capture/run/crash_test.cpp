// Runs that are killed, interrupted, started twice, or that run out of disk space.
#include <csignal>
#include <cstring>

#include <sys/mount.h>

#include "kill_points.h"

namespace qkscope {
namespace {

class InterruptedCapture : public CaptureFixture {};

// Parameter: whether final files are assembled ahead, during the run.
class KilledCapture : public CaptureFixture, public testing::WithParamInterface<bool> {
 protected:
  static std::string ahead() { return GetParam() ? "--set output.assemble_ahead=true" : ""; }
};

TEST_P(KilledCapture, ResumesToTheSameBytesAfterAKillAtEachNamedPoint) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer refuses a library loaded before its own";
  write_documents(file("docs.jsonl"), 150, 20);  // three segments
  ASSERT_EQ(capture("expected").status, 0);
  const auto expected = contents("expected");
  kill_and_resume(command("out", ahead()), std::filesystem::canonical(file("")).string(),
                  {{'c', ".parts/lock"},
                   {'r', "/manifest.json"},
                   {'r', "00000000.seg"},
                   {'w', "/journal.jsonl", 1},
                   {'s', "/journal.jsonl", 2},
                   {'r', "00000002.seg"},
                   {'s', "/journal.jsonl", 4},  // the part is complete
                   {'r', "/data.parquet", 1},   // a head file is written
                   {'r', "/_saver_state.json", 1},
                   {'r', "/examples.parquet", 2},  // a file is published
                   {'r', "/_saver_state.json", 2},
                   {'u', ".seg"},
                   {'u', ".parts/lock"}},
                  [&] {
                    expect_same("out", expected);
                    std::filesystem::remove_all(file("out"));
                  });
}

class CaptureSignal : public CaptureFixture, public testing::WithParamInterface<int> {};

TEST_P(CaptureSignal, EndsAfterTheCurrentBatchAndSaysHowToContinue) {
  const int signal = GetParam();
  write_documents(file("docs.jsonl"), 3000, 60);
  const pid_t child = start_program(
      fmt::format("sniff-qk --config {} --set output.data_root={}", file("run.yaml"), file("out")),
      file("err"));
  const auto part = file("out/.parts/00000-of-00001/journal.jsonl");
  wait_for_file(part);
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

INSTANTIATE_TEST_SUITE_P(All, CaptureSignal, testing::Values(SIGINT, SIGTERM, SIGHUP, SIGUSR1),
                         [](const auto& signal) { return sigabbrev_np(signal.param); });

// Of two concurrent runs with --overwrite, one is refused or runs after the other.
TEST_F(InterruptedCapture, TwoConcurrentOverwritesLeaveACompleteCapture) {
  write_documents(file("docs.jsonl"), 3, 5);
  ASSERT_EQ(capture("expected").status, 0);
  const auto expected = contents("expected");
  for (int round = 0; round < (kSanitized ? 3 : 10); ++round) {
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

// A failed --overwrite removes the state file first, so the remaining files of the old capture must
// still be recognised as files of qkscope.
TEST_F(InterruptedCapture, RepeatsAnOverwriteThatFailed) {
  ASSERT_EQ(capture("expected").status, 0);
  ASSERT_EQ(capture("out", "--set capture.head_sampling.count=8").status, 0);
  const auto files = contents("out");
  const auto first = std::ranges::find_if(
      files, [](const auto& entry) { return entry.first.ends_with("/data.parquet"); });
  ASSERT_NE(first, files.end());
  const auto head = file("out/" + first->first);
  ASSERT_TRUE(std::filesystem::remove(head));
  std::filesystem::create_directories(head);  // cannot be unlinked
  EXPECT_NE(capture("out", "--overwrite").status, 0);
  EXPECT_FALSE(std::filesystem::exists(file("out/_saver_state.json")));
  std::filesystem::remove(head);
  const auto again = capture("out", "--overwrite");
  ASSERT_EQ(again.status, 0) << again.err;
  expect_same("out", contents("expected"));
}

TEST_F(InterruptedCapture, RemovesTheOldHeadsOfAnOverwriteThatWasKilled) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer refuses a library loaded before its own";
  ASSERT_EQ(capture("expected").status, 0);
  ASSERT_EQ(capture("out", "--set capture.head_sampling.count=8").status, 0);
  const auto killed =
      run_recorded(command("out", "--overwrite"),
                   fmt::format("QKSCOPE_RECORD_BELOW={} QKSCOPE_KILL_AT='u _saver_state.json 1'",
                               std::filesystem::canonical(file("")).string()));
  ASSERT_EQ(killed.status, 128 + SIGKILL) << killed.err;
  const auto resumed = capture("out");
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  expect_same("out", contents("expected"));
}

TEST_F(InterruptedCapture, AMergeRemovesWhatAKilledMergeLeftBehind) {
  for (const auto* shard : {"--shard 0/2", "--shard 1/2"})
    ASSERT_EQ(capture("out", shard).status, 0);
  ASSERT_EQ(run_program("qkscope merge " + file("out")).status, 0);
  const auto expected = contents("out");
  std::filesystem::create_directories(file("out/.parts/final/l00h00k"));
  write_text(file("out/.parts/lock"), "");
  // One shard of two is still there: the merge was killed while it removed them.
  ASSERT_EQ(capture("other", "--shard 1/2").status, 0);
  std::filesystem::copy(file("other/.parts/00001-of-00002"), file("out/.parts/00001-of-00002"));
  ASSERT_EQ(run_program("qkscope merge " + file("out")).status, 0);
  EXPECT_FALSE(std::filesystem::exists(file("out/.parts")));
  expect_same("out", expected);
}

TEST_F(InterruptedCapture, RefusesASecondRunIntoTheSameFolder) {
  write_documents(file("docs.jsonl"), 3000, 60);
  const pid_t child = start_program(command("out"), file("err"));
  const auto part = file("out/.parts/00000-of-00001/manifest.json");
  wait_for_file(part);
  const auto second = capture("out");
  const auto overwriting = capture("out", "--overwrite");
  ::kill(child, SIGKILL);
  wait_for_program(child);
  EXPECT_EQ(second.status, 2);
  EXPECT_NE(second.err.find("another capture is running into this folder"), std::string::npos)
      << second.err;
  EXPECT_EQ(overwriting.status, 2);
}

TEST_F(InterruptedCapture, IgnoresATornLastJournalLine) {
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

TEST_F(InterruptedCapture, MergeRefusesADamagedSegment) {
  ASSERT_EQ(capture("out", "--shard 0/2").status, 0);
  ASSERT_EQ(capture("out", "--shard 1/2").status, 0);
  write_text(file("out/.parts/00001-of-00002/00000000.seg"), "short");
  const auto merged = run_program("qkscope merge " + file("out"));
  EXPECT_EQ(merged.status, 2);
  EXPECT_NE(merged.err.find("damaged"), std::string::npos) << merged.err;
  EXPECT_FALSE(std::filesystem::exists(file("out/_saver_state.json")));
  EXPECT_FALSE(std::filesystem::exists(file("out/l00h00q")));
}

// Mounts a small tmpfs, which needs root.
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

TEST_P(KilledCapture, FailsOnAFullDiskAndResumesWithMoreSpace) {
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

INSTANTIATE_TEST_SUITE_P(Both, KilledCapture, testing::Bool(), [](const auto& is_ahead) {
  return is_ahead.param ? "assembled_ahead" : "assembled_at_the_end";
});

TEST_F(InterruptedCapture, NamesTheFolderOnAReadOnlyFileSystem) {
  const SmallDisk disk(file("disk"), "size=1m", MS_RDONLY);
  if (!disk.mounted()) GTEST_SKIP() << "mounting a read-only tmpfs needs root";
  const auto outcome = capture("disk/out");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(outcome.err.find("Read-only file system"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find(file("disk/out")), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace qkscope
