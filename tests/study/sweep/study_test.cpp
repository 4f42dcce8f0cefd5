// Sweeps through the public header.
#include "qkscope/experimental/study.h"

#include <algorithm>
#include <atomic>
#include <set>

#include "error_message.h"
#include "qkscope/tables.h"
#include "sweep_fixture.h"

namespace qkscope {
namespace {

using Outcome = RunReport::Outcome;

class Study : public SweepFixture {
 protected:
  Sweep read() const { return Sweep::read({file("sweep.yaml"), {}, ""}, file("out")); }
};

TEST_F(Study, PlanRunAndOverviewAgree) {
  const auto sweep = read();
  EXPECT_EQ(sweep.name(), "small");
  EXPECT_EQ(sweep.folder(), file("out/small"));
  const auto planned = sweep.plan();
  ASSERT_EQ(planned.size(), 3u);
  EXPECT_EQ(planned[1].label, "second");
  ASSERT_TRUE(planned[1].capture);
  EXPECT_EQ(planned[1].capture->examples, 30);
  EXPECT_GT(planned[1].capture->rows, 0);
  EXPECT_FALSE(path_exists(file("out")));

  const auto reports = sweep.run({.only = {"first", "third"}, .shard = {}, .quiet = true});
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_EQ(reports[0].outcome, Outcome::done);
  EXPECT_EQ(reports[1].label, "third");
  const auto runs = sweep.runs();
  ASSERT_EQ(runs.size(), 3u);
  EXPECT_EQ(runs[0].state, RunState::done);
  EXPECT_EQ(to_string(runs[1].state), "pending");
  EXPECT_EQ(runs[2].phase, "long, at last");
  EXPECT_TRUE(sweep.plan()[0].analysed);

  const auto rows = sweep.overview();
  ASSERT_EQ(rows.size(), 6u);  // of two runs: all layers, rope, nope
  EXPECT_EQ(rows[0].layers, "all");
  EXPECT_EQ(rows[0].heads, 16);
  // Columns of the geometry that need statistics over every token; this sweep has captures alone.
  const std::set<std::string> of_statistics = {"concentration_q", "concentration_k",
                                               "frequency_use_slow", "decay_exponent",
                                               "sink_fraction"};
  for (const auto& measure : overview_measures())
    EXPECT_EQ(std::isnan(rows[0].value(measure)), of_statistics.contains(measure)) << measure;
  EXPECT_TRUE(std::isnan(rows[0].value("none")));
  const auto again = read_overview(sweep.folder());
  ASSERT_EQ(again.size(), rows.size());
  EXPECT_EQ(again[5].values, rows[5].values);
}

TEST_F(Study, ASingleMatchingLabelIsCompared) {
  write_sweep("", "runs:\n  - {label: S1-40K}\n");
  const auto sweep = read();
  ASSERT_EQ(sweep.run({.only = {}, .shard = {}, .quiet = true})[0].outcome, Outcome::done);
  const auto table = compare_with_published(sweep.folder());
  const auto& measures = table.find("measure")->texts;
  const auto r_q = static_cast<std::size_t>(std::find(measures.begin(), measures.end(), "r_q") -
                                            measures.begin());
  ASSERT_LT(r_q, measures.size());
  EXPECT_NEAR(table.find("ours")->reals[r_q], sweep.overview()[0].value("r_q"), 1e-14);
  EXPECT_EQ(table.find("model")->texts[r_q], "S1-40K");
}

TEST_F(Study, AStopBeforeTheStartInterruptsEveryRun) {
  const std::atomic<bool> stop = true;
  const auto reports = read().run({.only = {}, .shard = {}, .quiet = true, .stop = &stop});
  ASSERT_EQ(reports.size(), 3u);
  for (const auto& report : reports) EXPECT_EQ(report.outcome, Outcome::interrupted);
}

TEST_F(Study, EveryErrorIsAnError) {
  EXPECT_THROW(Sweep::read({file("none.yaml"), {}, ""}), Error);
  EXPECT_THROW(read().run({.only = {"x"}, .shard = {}}), Error);
  EXPECT_THROW(read_overview(file("none")), Error);
  EXPECT_THROW(compare_with_published(file("none")), Error);
  EXPECT_NO_THROW(Sweep::read({file("sweep.yaml"), {}, ""}, "results"));
}

}  // namespace
}  // namespace qkscope
