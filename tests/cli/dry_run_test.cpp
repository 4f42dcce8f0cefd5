// What --dry-run of capture and stats warns about, and the time it estimates.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "base/io/json.h"
#include "base/io/output_file.h"
#include "run_program.h"

namespace qkscope {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// The demo's model: context of 256 positions, heads of dimension 16.
class DryRun : public testing::Test {
 protected:
  void SetUp() override {
    const auto demo = source_path("share/demo/");
    write_file(
        folder_.file("run.yaml"),
        fmt::format("dataset: {{path: {}corpus.jsonl}}\nmodel: {{name: {}checkpoints/S3-4720}}\n"
                    "tokenizer: {{max_length: 256}}\ncapture:\n  sampler: {{type: uniform, "
                    "base_rate: 8}}\n  min_bucket_size: 64\noutput: {{data_root: {}}}\n",
                    demo, demo, folder_.file("data")));
  }
  Outcome run(const std::string& command, const std::string& options) const {
    return run_program(fmt::format("qkscope {} --config {} --device cpu --limit 4 --dry-run {}",
                                   command, folder_.file("run.yaml"), options));
  }
  std::vector<std::string> warnings(const std::string& options) const {
    const auto outcome = run("capture", options + " --json");
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return Json::parse(outcome.out)["warnings"].get<std::vector<std::string>>();
  }

  TemporaryFolder folder_;
};

TEST_F(DryRun, ListsHeadsOnlyWithVerboseAndTellsTheTime) {
  const auto plain = run("capture", "");
  EXPECT_EQ(plain.status, 0) << plain.err;
  EXPECT_THAT(plain.out, HasSubstr("heads      64 query and 16 key heads (-v lists them)\n"));
  EXPECT_THAT(plain.out, Not(HasSubstr("layer   0 q")));
  EXPECT_THAT(plain.out,
              HasSubstr("\ntime       about a second, from a pass of 256 tokens here ("));
  EXPECT_THAT(plain.err, Not(HasSubstr("warning")));
  EXPECT_THAT(run("capture", "-v").out, HasSubstr("layer   0 q  0 1 2 3 4 5 6 7\n"));
  EXPECT_THAT(run("stats", "").out, HasSubstr("\ntime       about a second, from a pass of"));
}

TEST_F(DryRun, WarnsAboutFewRowsAndGivesTheBaseRateThatWouldDo) {
  EXPECT_THAT(warnings(""), IsEmpty());
  EXPECT_THAT(
      warnings("--set capture.sampler.base_rate=1"),
      ElementsAre(HasSubstr("160 are needed (10 per dimension). capture.sampler.base_rate ")));
  EXPECT_THAT(warnings("--set capture.sampler.base_rate=1 --set tokenizer.max_length=16"),
              ElementsAre(HasSubstr("even every position would be too few: take more or longer")));
  EXPECT_THAT(warnings("--set capture.capture_keys=false"),
              ElementsAre("only queries are captured; the analyses need queries and keys"));
}

// With the base rate of the warning, the warning is gone.
TEST_F(DryRun, SuggestedBaseRateGivesEnoughRows) {
  const auto warning = warnings("--set capture.sampler.base_rate=1").front();
  const auto begin = warning.rfind("base_rate ") + 10;
  const auto rate = warning.substr(begin, warning.find(' ', begin) - begin);
  EXPECT_GT(std::stod(rate), 1.0) << warning;
  // The sample is random: 15 % more than suggested exceeds three standard deviations of its size.
  EXPECT_THAT(warnings(fmt::format("--set capture.sampler.base_rate={}", 1.15 * std::stod(rate))),
              IsEmpty());
}

TEST_F(DryRun, WarnsAboutLengthsAboveTheContextAndUselessBaseRates) {
  EXPECT_THAT(
      warnings("--set tokenizer.max_length=300"),
      ElementsAre(HasSubstr("tokenizer.max_length 300 is above the context of the model, 256 "
                            "positions")));
  EXPECT_THAT(warnings("--set capture.sampler.base_rate=65"),
              ElementsAre(HasSubstr("base_rate 65 is above capture.min_bucket_size 64")));
  EXPECT_THAT(warnings("--set capture.sampler.base_rate=64"), IsEmpty());
  const auto stats = run("stats", "--set tokenizer.max_length=300");
  EXPECT_EQ(stats.status, 0) << stats.err;
  EXPECT_THAT(stats.err, HasSubstr("warning: tokenizer.max_length 300 is above the context"));
}

}  // namespace
}  // namespace qkscope
