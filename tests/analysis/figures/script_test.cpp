// Quoted text, tick steps and units in gnuplot scripts.
#include <cmath>

#include <gtest/gtest.h>

#include "analysis/figures/figure.h"
#include "analysis/figures/run_plots.h"

namespace qkscope {
namespace {

TEST(Script, QuotedTextIsNeitherMarkupNorCommand) {
  EXPECT_EQ(gnuplot_literal("plain"), "'plain'");
  EXPECT_EQ(gnuplot_literal("a_b^c{d}@e&f~g\\h"), R"('a\_b\^c\{d\}\@e\&f\~g\\h')");
  EXPECT_EQ(gnuplot_literal("it's `ls` \"$x\""), "'it''s `ls` \"$x\"'");
  EXPECT_EQ(gnuplot_literal("two\nlines\t\x7f"), "'two lines  '");
  EXPECT_EQ(gnuplot_literal("bad \xff utf-8"), "'bad \xEF\xBF\xBD utf-8'");
}

TEST(Script, LongNamesAreShortenedInTheMiddle) {
  EXPECT_EQ(shorten_text("short", 5), "short");
  EXPECT_EQ(shorten_text("0123456789", 5), "01…89");
  EXPECT_EQ(shorten_text("ααααβγγγγ", 4), "α…γγ");
}

TEST(Script, TickStepsAreOneTwoOrFiveTimesAPowerOfTen) {
  EXPECT_DOUBLE_EQ(nice_tick_step(10, 3), 5);
  EXPECT_DOUBLE_EQ(nice_tick_step(1, 5), 0.2);
  EXPECT_DOUBLE_EQ(nice_tick_step(131072, 2), 100000);
  EXPECT_DOUBLE_EQ(nice_tick_step(0, 2), 1);
}

TEST(Script, SmallValuesGetAPowerOfTenInTheirUnit) {
  EXPECT_EQ(choose_axis_unit({{0.004, 0.004}}, "per token").text, "10^{-3} per token");
  EXPECT_DOUBLE_EQ(choose_axis_unit({{0.004, 0.004}}, "per token").scale, 1000);
  EXPECT_EQ(choose_axis_unit({{0.4}, {}}, "per token").text, "per token");
  EXPECT_EQ(choose_axis_unit({{}}, "per token").text, "per token");
}

TEST(SampleStatistics, AgreeWithNumpy) {
  EXPECT_DOUBLE_EQ(mean_of({1, 2, 6}), 3);
  EXPECT_DOUBLE_EQ(standard_deviation_of({1, 2, 6}), std::sqrt(7.0));
  EXPECT_DOUBLE_EQ(quantile_of({4, 1, 2, 3}, 0.25), 1.75);
  EXPECT_DOUBLE_EQ(quantile_of({5}, 0.75), 5);
  EXPECT_TRUE(std::isnan(mean_of({})));
  EXPECT_TRUE(std::isnan(standard_deviation_of({1})));
  EXPECT_TRUE(std::isnan(quantile_of({}, 0.5)));
}

}  // namespace
}  // namespace qkscope
