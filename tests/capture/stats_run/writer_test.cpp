// Statistics of an external engine are those of a native run, as far as the engine shows the
// vectors.
#include <gtest/gtest.h>

#include "capture/run/model_engine.h"
#include "collect_fixture.h"
#include "qkscope/statistics.h"

namespace qkscope {
namespace {

class StatisticsWriter : public CollectFixture {
 protected:
  StatsConfig config(const std::string& root, const std::vector<std::string>& more = {}) const {
    auto overrides = more;
    overrides.push_back("output.data_root=" + file(root));
    return read_stats_config(file("run.yaml"), overrides);
  }
  std::shared_ptr<ModelEngine> engine_ = std::make_shared<ModelEngine>(tiny_checkpoint());
};

void expect_equal(const Statistics& native, const Statistics& other) {
  EXPECT_EQ(native.lengths, other.lengths);
  EXPECT_EQ(native.attention.sum, other.attention.sum);
  EXPECT_EQ(native.attention.key_mass, other.attention.key_mass);
  EXPECT_EQ(native.rotary, other.rotary);
  for (const auto kind : {VectorKind::query, VectorKind::key, VectorKind::value}) {
    const auto stage = kind == VectorKind::value ? VectorStage::pre : VectorStage::post;
    const auto& a = native.moments.at({kind, stage});
    const auto& b = other.moments.at({kind, stage});
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t layer = 0; layer < a.size(); ++layer) {
      EXPECT_EQ(a[layer].body.mean, b[layer].body.mean);
      EXPECT_EQ(a[layer].body.m2, b[layer].body.m2);
    }
  }
  EXPECT_FALSE(other.moments.contains({VectorKind::query, VectorStage::pre}));
}

TEST_F(StatisticsWriter, SumsOfAnEngineAreThoseOfANativeRun) {
  run_stats(make_stats_plan(config("native")), {.shard = {}, .quiet = true});
  const auto native = read_statistics(file("native"));
  run_stats(make_stats_plan(config("engine"), {}, engine_), {.shard = {}, .quiet = true});
  expect_equal(native, read_statistics(file("engine")));
}

TEST_F(StatisticsWriter, DocumentsOfTheCallerResumeToTheSameSums) {
  run_stats(make_stats_plan(config("native")), {.shard = {}, .quiet = true});
  const auto documents = read_writer_documents(file("docs.jsonl"), tiny_checkpoint());
  const auto plan = [&] {
    return make_stats_plan(config("out", {"dataset.path='-'"}), {}, engine_);
  };
  {
    StatsWriter writer(plan());
    for (std::size_t i = 0; i < 10; ++i) writer.add(documents[i], engine_->pass());
    writer.flush();
    writer.add(documents[10], engine_->pass());
  }
  StatsWriter writer(plan());
  EXPECT_EQ(writer.stored(), 10);
  for (const auto& document : documents) writer.add(document, engine_->pass());
  EXPECT_EQ(writer.finish().outcome, RunOutcome::finished);
  expect_equal(read_statistics(file("native")), read_statistics(file("out")));
}

TEST_F(StatisticsWriter, SettingsThatNeedTheNativeEngineAreRefused) {
  for (const auto* setting : {"stats.stages=[pre]", "stats.retrieval=trials.jsonl"})
    EXPECT_THROW(make_stats_plan(config("out", {setting}), {}, engine_), Error) << setting;
}

}  // namespace
}  // namespace qkscope
