#include "base/io/child_process.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "temporary_folder.h"

namespace qkscope {
namespace {

TEST(RunChild, CollectsBothOutputsAndTheStatus) {
  const auto result = run_process({"sh", "-c", "echo out; echo err >&2; cat; exit 3"});
  EXPECT_TRUE(result.found);
  EXPECT_EQ(result.status, 3);
  EXPECT_EQ(result.out, "out\n");
  EXPECT_EQ(result.err, "err\n");
}

TEST(RunChild, OutputLargerThanAPipeDoesNotBlock) {
  const auto result = run_process({"sh", "-c", "head -c 1000000 /dev/zero"});
  EXPECT_EQ(result.out.size(), 1'000'000u);
}

TEST(RunChild, RunsInTheGivenFolder) {
  const TemporaryFolder folder;
  const auto result = run_process({"pwd", "-P"}, folder.path());
  EXPECT_EQ(result.out, std::filesystem::canonical(folder.path()).string() + "\n");
}

TEST(RunChild, ArgumentsAreNotInterpretedByAShell) {
  EXPECT_EQ(run_process({"printf", "%s|", "$HOME", "a b"}).out, "$HOME|a b|");
}

TEST(RunChild, SignalsAreReportedAs128AndTheirNumber) {
  EXPECT_EQ(run_process({"sh", "-c", "kill -9 $$"}).status, 128 + 9);
}

TEST(RunChild, AMissingProgramIsNotFound) {
  EXPECT_FALSE(run_process({"no-such-program-anywhere"}).found);
}

}  // namespace
}  // namespace qkscope
