#include <gmock/gmock.h>

#include "base/io/json.h"
#include "paths.h"
#include "run_program.h"

namespace qkscope {
namespace {

using testing::HasSubstr;

const std::string kModel = source_path("tests/golden/smollm3_list");  // 4 layers, 1,024 positions

Outcome bench(const std::string& options) {
  return run_program("qkscope bench --device cpu --ceiling-seconds 0.02 --repeats 2 " + options);
}

TEST(Bench, PrintsSpeedAndTimePerPart) {
  const auto outcome = bench("--model " + kModel + " --batch 16,2x300");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  for (const auto* part : {"ceiling", "FLOP/s", "1 x 16", "2 x 300", "tokens/s", "tiles of",
                           "attention", "gate, up", "norms"})
    EXPECT_THAT(outcome.out, HasSubstr(part));
}

// Rows 255 and 299 of both documents are sampled: after the attention of layer 2 only they are
// computed.
TEST(Bench, CountsTheFlopOfEachPart) {
  const auto outcome = bench("--model " + kModel + " --batch 2x300 --json");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto report = Json::parse(outcome.out);
  EXPECT_EQ(report["device"], "cpu");
  EXPECT_EQ(report["dtype"], "float32");
  EXPECT_GT(report["ceiling_flop_per_s"], 0.0);
  ASSERT_EQ(report["batches"].size(), 1u);
  const auto& result = report["batches"][0];
  EXPECT_EQ(result["documents"], 2);
  EXPECT_EQ(result["tokens"], 300);
  EXPECT_NEAR(result["tokens_per_s"].get<double>() * result["seconds"].get<double>(), 600.0, 1e-6);
  EXPECT_GT(result["share_of_ceiling"], 0.0);
  EXPECT_EQ(result["attention"].size(), 1u);
  double flop = 0.0;
  double qkv = 0.0;
  for (const auto& part : result["parts"]) {
    flop += part["flop"].get<double>();
    if (part["name"] == "q, k, v") qkv = part["flop"].get<double>();
    EXPECT_GE(part["seconds"], 0.0);
  }
  EXPECT_EQ(result["flop"], flop);
  // Width 32, 4 query and 2 key heads of 8: 64 columns, 48 in the last layer, which needs no v.
  EXPECT_EQ(qkv, 2.0 * 32 * (600 * 3 * 64 + 4 * 48));
}

TEST(Bench, MixersOfHybridModelsAreTimed) {
  const auto outcome = bench("--model " + golden_path("nemotron_h") + " --batch 20 --json");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto report = Json::parse(outcome.out);
  double flop = 0.0;
  for (const auto& part : report["batches"][0]["parts"])
    if (part["name"] == "mixer") flop = part["flop"].get<double>();
  // Only layer 0 precedes the attention of layer 2: 6 heads of 8, 2 groups of 12 states.
  EXPECT_EQ(flop, 2.0 * 20 * (32 * (48 + 2 * 24 + 48 + 2 * 6) + 3 * 12 * 48));
}

TEST(Bench, LatentAttentionWithoutRopeIsTimed) {
  const auto outcome = bench("--model " + golden_path("kimi_linear_long") + " --batch 20 --json");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto report = Json::parse(outcome.out);
  double flop = 0.0;
  for (const auto& part : report["batches"][0]["parts"])
    if (part["name"] == "mixer") flop = part["flop"].get<double>();
  // Layers 0 and 1: 3 heads of 12, and two gates of rank 12.
  EXPECT_EQ(flop, 2 * 2.0 * 20 * (32 * (4 * 36 + 3 - 36) + 2 * 12 * (32 + 36) + 3 * 12 * 36));
}

TEST(Bench, DefaultLengthsStayWithinTheContext) {
  const auto outcome = bench("--model " + kModel + " --json");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto report = Json::parse(outcome.out);
  ASSERT_EQ(report["batches"].size(), 2u);
  EXPECT_EQ(report["batches"][0]["tokens"], 512);
  EXPECT_EQ(report["batches"][1]["tokens"], 1024);
}

TEST(Bench, BadInputIsRefused) {
  const auto expect = [](const std::string& options, const std::string& part) {
    const auto outcome = bench(options);
    EXPECT_EQ(outcome.status, 2) << options;
    EXPECT_THAT(outcome.err, HasSubstr(part)) << options;
    EXPECT_EQ(outcome.out, "") << options;
  };
  expect("--model " + kModel + " --batch 8y4096", "--batch");
  expect("--model " + kModel + " --batch 1x2x3", "DOCUMENTSxTOKENS");
  expect("--model " + kModel + " --batch 0x16", "at least one document");
  expect("--model " + kModel + " --batch 0", "at least one document");
  expect("--model /no/such/folder", "/no/such/folder");
  expect("--batch 16", "--model");
  expect("--model " + kModel + " --repeats 0", "--repeats");
  expect("--model " + kModel + " --dtype int8", "--dtype");
}

}  // namespace
}  // namespace qkscope
