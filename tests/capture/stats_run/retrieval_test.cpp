#include "capture/stats_run/stats_plan.h"
#include "collect_fixture.h"
#include "qkscope/statistics.h"

namespace qkscope {
namespace {

// One head attends to the needle token to be copied, the other to an arbitrary token.
TEST(Retrieval, ACopyHeadScoresOne) {
  constexpr std::int64_t kTokens = 400;
  std::vector<std::int32_t> tokens(kTokens);
  for (std::int64_t i = 0; i < kTokens; ++i)
    tokens[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i);
  std::mt19937 random(5);
  double copy = 0;
  double other = 0;
  for (std::int64_t step = 0; step < 10; ++step) {
    const NeedleDecodingStep needle{tokens, 100, 110, tokens[static_cast<std::size_t>(100 + step)]};
    std::vector<float> scores(kTokens);
    for (auto& score : scores) score = static_cast<float>(random() % 1000);
    other += score_retrieval_step(scores, needle);
    scores[static_cast<std::size_t>(100 + step)] = 1e6f;
    copy += score_retrieval_step(scores, needle);
  }
  EXPECT_DOUBLE_EQ(copy, 1.0);
  EXPECT_LT(other, 0.05);
}

class RetrievalRun : public CollectFixture {};

TEST_F(RetrievalRun, TrialsAreStoredAndDoNotChangeOtherStatistics) {
  write_text(file("trials.jsonl"),
             "{\"id\": \"a\", \"text\": \"the cold river and the light stone and the river\", "
             "\"needle_start\": 1, \"needle_end\": 4, \"answer\": \"river\"}\n"
             "{\"text\": \"stone river stone\", \"needle_start\": 0, \"needle_end\": 2, "
             "\"answer\": [5, 6]}\n");
  ASSERT_EQ(stats("without").status, 0);
  const auto run = stats("out", "--set stats.retrieval=" + file("trials.jsonl"));
  ASSERT_EQ(run.status, 0) << run.err;
  const auto with = read_statistics(file("out"));
  const auto without = read_statistics(file("without"));
  EXPECT_EQ(with.lengths, without.lengths);
  EXPECT_EQ(with.attention.sum, without.attention.sum);
  ASSERT_EQ(with.retrieval.size(), 2u);
  EXPECT_EQ(with.retrieval[0].id, "a");
  EXPECT_EQ(with.retrieval[0].needle_end, 4);
  EXPECT_EQ(with.retrieval[1].score.size(),
            with.layers.size() * static_cast<std::size_t>(with.heads));
  for (const double score : with.retrieval[1].score) EXPECT_TRUE(score >= 0 && score <= 1);
}

TEST_F(RetrievalRun, NamesTheLineOfABadTrial) {
  const auto said = [&](const std::string& line) {
    write_text(file("trials.jsonl"), "\n" + line + "\n");
    const auto run = stats("bad", "--set stats.retrieval=" + file("trials.jsonl"));
    EXPECT_EQ(run.status, 2) << run.err;
    return run.err;
  };
  EXPECT_NE(said("{\"text\": \"river\"}").find("trials.jsonl:2: expected needle"),
            std::string::npos);
  EXPECT_NE(said("{\"text\": \"river\", \"needle\": \"zebra\", \"answer\": \"x\"}")
                .find("its tokens are not in the text"),
            std::string::npos);
  EXPECT_NE(said("{\"text\": \"river\", \"needle_start\": 0, \"needle_end\": 900, "
                 "\"answer\": \"x\"}")
                .find("the needle is tokens 0 to 900"),
            std::string::npos);
}

}  // namespace
}  // namespace qkscope
