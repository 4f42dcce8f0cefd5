// Sweeps in an object store: same bytes as a local sweep, resumable on another machine.
#include <gmock/gmock.h>

#include "input/store/stored_folder.h"
#include "sweep_fixture.h"

namespace qkscope {
namespace {

using testing::HasSubstr;

// Each machine is simulated by its own scratch folder.
class StoredSweeps : public SweepFixture {
 protected:
  std::string address(const std::string& out = "store") const { return "file://" + file(out); }

  Outcome on(const std::string& machine, const std::string& arguments) const {
    return run_program(
        fmt::format("QKSCOPE_SCRATCH={} qkscope {}", file("scratch-" + machine), arguments));
  }
  std::string stored(const std::string& options = "", const std::string& out = "store") const {
    return fmt::format("sweep {} --out {} --no-figures {}", file("sweep.yaml"), address(out),
                       options);
  }

  static std::map<std::string, std::string> objects_of(const std::string& address) {
    const auto there = open_stored_folder(*parse_store_uri(address));
    std::map<std::string, std::string> all;
    for (const auto& file : there.manifest().files)
      all[file.name] = there.object_store().read(file.object).value_or("not there");
    return all;
  }

  // Content of the store under the file names of a local sweep.
  std::map<std::string, std::string> in_store(const std::vector<std::string>& data) const {
    auto all = objects_of(address() + "/small");
    for (const auto& folder : data)
      for (const auto& [name, content] : objects_of(address() + "/small/" + folder))
        all[folder + "/" + name] = content;
    std::erase_if(all, [](const auto& file) {
      return file.first.ends_with("summary.json") || file.first.ends_with("timings.json");
    });
    return all;
  }

  static void expect_equal(const std::map<std::string, std::string>& found,
                           const std::map<std::string, std::string>& expected) {
    for (const auto& [name, content] : found)
      EXPECT_TRUE(expected.contains(name)) << name << " should not be there";
    for (const auto& [name, content] : expected) {
      ASSERT_TRUE(found.contains(name)) << name;
      EXPECT_TRUE(found.at(name) == content) << name << " differs";
    }
  }

  const std::vector<std::string> kCaptures = {"captures/first", "captures/second",
                                              "captures/third"};
};

TEST_F(StoredSweeps, AreByteIdenticalToLocalOnesAndResumeOnAnyMachine) {
  ASSERT_EQ(sweep("expected").status, 0);
  const auto first = on("one", stored("--only second"));
  ASSERT_EQ(first.status, 0) << first.err;
  EXPECT_THAT(first.out, HasSubstr("results in " + address() + "/small"));
  const auto rest = on("two", stored());
  ASSERT_EQ(rest.status, 0) << rest.err;
  EXPECT_THAT(rest.out, HasSubstr("2 done, 1 were done before, 0 failed"));
  expect_equal(in_store(kCaptures), contents("expected"));
  EXPECT_FALSE(path_exists("file:"));

  // Another run computes and uploads nothing, on any machine.
  const auto before = StoredFolder(*parse_store_uri(address() + "/small")).manifest_hash();
  std::filesystem::rename(tiny_checkpoint(), tiny_checkpoint() + ".away");
  for (const std::string machine : {"one", "three"}) {
    const auto again = on(machine, stored());
    EXPECT_EQ(again.status, 0) << again.err;
    EXPECT_THAT(again.out, HasSubstr("0 done, 3 were done before, 0 failed"));
  }
  const auto planned = on("four", stored("--dry-run"));
  const auto status =
      on("five", fmt::format("sweep {} --out {} --status", file("sweep.yaml"), address()));
  std::filesystem::rename(tiny_checkpoint() + ".away", tiny_checkpoint());
  EXPECT_EQ(StoredFolder(*parse_store_uri(address() + "/small")).manifest_hash(), before);
  EXPECT_THAT(planned.out, HasSubstr("third            captured, analysed")) << planned.err;
  EXPECT_THAT(status.out, HasSubstr("3 of 3 runs done, 0 failed")) << status.err;
}

TEST_F(StoredSweeps, WithStatisticsAreByteIdenticalToLocalOnes) {
  write_sweep("stats: {groups: [A]}\n", "runs:\n  - {label: first, phase: short}\n");
  ASSERT_EQ(sweep("expected").status, 0);
  const auto done = on("one", stored());
  ASSERT_EQ(done.status, 0) << done.err;
  expect_equal(in_store({"captures/first", "statistics/first"}), contents("expected"));
  EXPECT_THAT(on("two", stored()).out, HasSubstr("0 done, 1 were done before"));
}

TEST_F(StoredSweeps, ShardsOnTwoMachinesGiveTheTablesOfAllRuns) {
  ASSERT_EQ(sweep("expected").status, 0);
  const auto shard = [&](const std::string& machine, const std::string& which) {
    return fmt::format("QKSCOPE_SCRATCH={} qkscope {}", file("scratch-" + machine),
                       stored("--quiet --shard " + which));
  };
  const auto both = run_program(shard("one", "0/2") + " & " + shard("two", "1/2") +
                                " ; s=$?; wait $! && exit $s");
  EXPECT_EQ(both.status, 0) << both.err;
  expect_equal(in_store(kCaptures), contents("expected"));
}

// One machine finishes each run; the other may fail at it, and the next sweep repairs the result.
TEST_F(StoredSweeps, TwoMachinesWithTheSameRunsNeverMixTheirFiles) {
  ASSERT_EQ(sweep("expected").status, 0);
  const auto start = [&](const std::string& machine) {
    return start_program(
        "env QKSCOPE_SCRATCH=" + file("scratch-" + machine) + " qkscope " + stored("--quiet"),
        file("err-" + machine));
  };
  const pid_t one = start("one");
  const pid_t two = start("two");
  for (const pid_t machine : {one, two}) {
    const int status = wait_for_program(machine);
    EXPECT_TRUE(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 2))
        << MappedFile(file("err-one")).text() << MappedFile(file("err-two")).text();
  }
  const auto last = on("three", stored());
  EXPECT_EQ(last.status, 0) << last.err;
  EXPECT_THAT(last.out, HasSubstr(", 0 failed"));
  expect_equal(in_store(kCaptures), contents("expected"));
}

TEST_F(StoredSweeps, FailuresAreStoredUntilTheRunSucceeds) {
  const auto checkpoint = file("later");
  write_sweep("", fmt::format("runs:\n  - {{label: first}}\n"
                              "  - {{label: gone, overrides: {{model.name: {}}}}}\n",
                              checkpoint));
  const auto failed = on("one", stored());
  EXPECT_EQ(failed.status, 2);
  EXPECT_THAT(failed.err, HasSubstr("1 of 2 runs failed: gone"));
  const auto status =
      on("two", fmt::format("sweep {} --out {} --status", file("sweep.yaml"), address()));
  EXPECT_THAT(status.out, HasSubstr("1 of 2 runs done, 1 failed")) << status.err;
  EXPECT_THAT(status.out, HasSubstr(checkpoint));
  std::filesystem::create_symlink(tiny_checkpoint(), checkpoint);
  const auto again = on("two", stored());
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("1 done, 1 were done before"));
  EXPECT_FALSE(objects_of(address() + "/small").contains("runs/gone/failure.json"));
}

TEST_F(StoredSweeps, AnotherConfigurationNeedsOverwrite) {
  ASSERT_EQ(on("one", stored("--quiet --only first")).status, 0);
  const std::string other = "--only first --set capture.min_bucket_size=32 ";
  const auto refused = on("two", stored(other));
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("capture.min_bucket_size: 16 there, 32 now"));
  const auto forced = on("two", stored(other + "--overwrite"));
  EXPECT_EQ(forced.status, 0) << forced.err;
  EXPECT_THAT(forced.out, HasSubstr("1 done, 0 were done before"));
}

TEST_F(StoredSweeps, AreReadByCompareAndCombine) {
  ASSERT_EQ(sweep("local").status, 0);
  ASSERT_EQ(on("one", stored("--quiet")).status, 0);
  const auto small = address() + "/small";
  const auto compared = on("two", fmt::format("compare {} {} --csv", small, file("local/small")));
  EXPECT_EQ(compared.status, 0) << compared.err;
  const auto combined = on("two", fmt::format("combine here={} {} --out {}", file("local/small"),
                                              small, file("combined")));
  EXPECT_EQ(combined.status, 0) << combined.err;
  EXPECT_TRUE(path_exists(file("combined/qk.parquet")));
  EXPECT_THAT(on("two", fmt::format("gc {} --older-than 0s", address())).out,
              HasSubstr("no garbage"));
}

TEST_F(StoredSweeps, RefusePartsAndSubmission) {
  const auto part = on("one", stored("--part merge"));
  EXPECT_EQ(part.status, 2);
  EXPECT_THAT(part.err, HasSubstr("--part: the tasks of a cluster share a local folder"));
  const auto submitted =
      on("one", fmt::format("submit sweep {} --out {} --dry-run", file("sweep.yaml"), address()));
  EXPECT_EQ(submitted.status, 2);
  EXPECT_THAT(submitted.err, HasSubstr("share a local folder, not an address"));
  EXPECT_EQ(on("one", fmt::format("sweep {} --out ftp://x/y", file("sweep.yaml"))).status, 2);
  EXPECT_FALSE(path_exists(file("store")));
  EXPECT_FALSE(path_exists(file("scratch-one/sweeps")));
}

}  // namespace
}  // namespace qkscope
