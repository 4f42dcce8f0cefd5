// Merging many shards: same bytes as one run, with memory and open files independent of their
// number.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "capture_fixture.h"
#include "paths.h"
#include "planted_parts.h"

namespace qkscope {
namespace {

constexpr PlantedParts kParts{.documents = 400,
                              .rows = 6,
                              .layers = 12,
                              .query_heads = 3,
                              .key_heads = 1,
                              .head_dim = 16,
                              .segment_size = 2,
                              .row_group_size = 512,
                              .uneven = true};

class MergeOfManyShards : public CaptureFixture {
 protected:
  void SetUp() override {}  // no model

  void write_shards(const std::string& root, std::int64_t count,
                    const PlantedParts& parts = kParts) const {
    const DataRoot data_root(file(root));
    const PlantedRows rows(parts);
    for (std::int64_t i = 0; i < count; ++i) write_planted_part(data_root, parts, rows, {i, count});
  }

  // Runs `qkscope merge` with a limit of open files and returns its peak resident set size in KiB.
  // The peak of several threads is random, so memory is measured with one.
  long merge(const std::string& root, rlim_t files, int threads = 1) const {
    const auto line = "PATH=\"" + program_folder() + ":$PATH\"; exec qkscope merge " + file(root) +
                      " --quiet --threads " + std::to_string(threads);
    const pid_t child = ::fork();
    if (child == 0) {
      const struct rlimit limit { files, files };
      ::setrlimit(RLIMIT_NOFILE, &limit);
      ::execl("/bin/sh", "sh", "-c", line.c_str(), static_cast<char*>(nullptr));
      ::_exit(127);
    }
    int status = 0;
    struct rusage usage {};
    ::wait4(child, &status, 0, &usage);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << root;
    return usage.ru_maxrss;
  }
};

TEST_F(MergeOfManyShards, TwoHundredShardsWith64OpenFilesGiveTheBytesOfOneRun) {
  write_shards("one", 1);
  write_shards("few", 20);
  write_shards("many", 200);
  merge("one", 1024, 2);
  const auto few = merge("few", 64);
  const auto many = merge("many", 64);
  const auto expected = contents("one");
  EXPECT_EQ(expected.size(), 12 * 4 + 3u);  // heads, examples, card, state
  expect_same("few", expected);
  expect_same("many", expected);
  fmt::print("peak memory: {} KiB for 20 shards, {} KiB for 200\n", few, many);
  if (kSanitized) return;  // sanitizers quarantine freed memory
  // The journals and cursors of 180 more shards were measured at 30 KiB.
  EXPECT_LT(many, few + 512);
}

TEST_F(MergeOfManyShards, MergesShardsWithoutDocuments) {
  auto parts = kParts;
  parts.documents = 5;
  write_shards("one", 1, parts);
  write_shards("many", 7, parts);
  merge("one", 1024);
  merge("many", 64, 2);
  expect_same("many", contents("one"));
}

}  // namespace
}  // namespace qkscope
