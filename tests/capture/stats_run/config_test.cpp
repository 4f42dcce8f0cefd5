// The section `stats` of a configuration.
#include <gtest/gtest.h>

#include "error_message.h"
#include "qkscope/statistics.h"

namespace qkscope {
namespace {

StatsConfig parse(const std::string& stats) {
  return parse_stats_config("dataset: {path: d}\nmodel: {name: m}\n" + stats);
}

TEST(StatsConfigTest, DefaultsToMomentsOnly) {
  const auto s = parse("").stats;
  EXPECT_TRUE(s.moments);
  EXPECT_FALSE(s.near_keys);
  EXPECT_FALSE(s.all_keys);
  EXPECT_EQ(s.first, 4);
  EXPECT_EQ(s.buckets, 16);
  EXPECT_EQ(s.window, 256);
  EXPECT_EQ(s.stream_first, 128);
  EXPECT_EQ(s.stream_last, 256);
}

TEST(StatsConfigTest, ReadsEveryKey) {
  const auto s = parse(
                     "stats:\n  groups: [C]\n  kinds: [q, v]\n  stages: [post]\n  layers: [1, 2]\n"
                     "  first: 0\n  buckets: 8\n  bucket_size: 512\n  bucket_covariance: [q]\n"
                     "  window: 64\n  stream: [4, 32]\n  columns: [[1, 2]]\n"
                     "  kl: [fp8, int8_channel, int4_group_32]\n"
                     "  keep: [first_4_last_256, short_50]\n  retrieval: trials.jsonl\n"
                     "  min_match: 0.25\n")
                     .stats;
  EXPECT_FALSE(s.moments);
  EXPECT_TRUE(s.near_keys);
  EXPECT_TRUE(s.all_keys);
  EXPECT_EQ(s.kinds, (std::vector{VectorKind::query, VectorKind::value}));
  EXPECT_EQ(s.stages, std::vector{VectorStage::post});
  EXPECT_EQ(s.layers, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(s.bucket_size, 512);
  EXPECT_EQ(s.columns.at(0), (LayerHead{1, 2}));
  EXPECT_EQ(s.kl.at(2).group, 32);
  EXPECT_EQ(s.kl.at(0).scale, KeyReplacement::Scale::head);
  EXPECT_EQ(s.keep.at(0).first, 4);
  EXPECT_EQ(s.keep.at(0).last, 256);
  EXPECT_DOUBLE_EQ(s.keep.at(1).share, 0.5);
  EXPECT_EQ(s.retrieval, "trials.jsonl");
  EXPECT_DOUBLE_EQ(s.min_match, 0.25);
}

TEST(StatsConfigTest, NamesMistakes) {
  const auto message = [](const std::string& stats) {
    return bad_input_message([&] { parse(stats); });
  };
  EXPECT_NE(message("stats:\n  groups: [D]\n").find("expected A, B and C"), std::string::npos);
  EXPECT_NE(message("stats:\n  windw: 4\n").find("window"), std::string::npos);
  EXPECT_NE(message("stats:\n  window: 100\n").find("a power of two up to 4096"),
            std::string::npos);
  EXPECT_NE(message("stats:\n  kl: [fp8]\n").find("group C"), std::string::npos);
  EXPECT_NE(message("stats:\n  groups: [C]\n  kl: [int3]\n").find("int8_channel"),
            std::string::npos);
  EXPECT_NE(message("stats:\n  groups: [C]\n  keep: [most]\n").find("first_4_last_256"),
            std::string::npos);
  EXPECT_NE(message("stats:\n  stream: [4]\n").find("[first, last]"), std::string::npos);
  EXPECT_NE(message("stats:\n  kinds: [x]\n").find("a list of q, k and v"), std::string::npos);
}

// Captures and statistics share one configuration file.
TEST(StatsConfigTest, ReadsTheFractionOfQueriesOfGroupC) {
  const auto fraction = [](const std::string& value) {
    return parse("stats: {groups: [C], all_keys_rows: " + value + ", seed: 7}\n").stats;
  };
  EXPECT_EQ(parse("stats: {groups: [C]}\n").stats.all_keys_rows, 1.0);
  EXPECT_EQ(fraction("1/16").all_keys_rows, 1.0 / 16);
  EXPECT_EQ(fraction("0.25").all_keys_rows, 0.25);
  EXPECT_EQ(fraction("1").all_keys_rows, 1.0);
  EXPECT_EQ(fraction("1/16").seed, 7);
  for (const auto* wrong :
       {"0", "-1/2", "17/16", "1/0", "nan", "inf/inf", "1/2/3", "half", "/", "1/"})
    EXPECT_NE(bad_input_message([&] { fraction(wrong); }).find("at most 1, as 1/16"),
              std::string::npos)
        << wrong;
  EXPECT_NE(bad_input_message([] { parse("stats: {all_keys_rows: 1/2}\n"); }).find("group C"),
            std::string::npos);
  const auto* columns = "stats: {groups: [C], all_keys_rows: 1/2, columns: [[1, 2]]}\n";
  EXPECT_NE(bad_input_message([&] { parse(columns); }).find("needs all queries"),
            std::string::npos);
}

TEST(StatsConfigTest, CaptureIgnoresTheSectionStats) {
  EXPECT_NO_THROW(
      parse_capture_config("dataset: {path: d}\nmodel: {name: m}\nstats: {groups: [A]}\n"));
}

}  // namespace
}  // namespace qkscope
