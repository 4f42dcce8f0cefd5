// Figures from the planar rotation: over training, and across models.
#include <cmath>

#include <fmt/format.h>

#include "analysis/figures/registry.h"
#include "analysis/figures/run_axis.h"
#include "analysis/figures/run_series.h"
#include "analysis/figures/style.h"

namespace qkscope {
namespace {

// A measure with its mean over heads and the band between quartiles.
struct RotationMeasure {
  std::string name;   // also in errors.csv
  std::string label;  // gnuplot markup
  std::string unit;   // empty for shares and correlations, whose axis goes from 0 to 1
  std::vector<double> values;
  std::string null_column = "";  // what shuffled positions give, where the results have it
};

constexpr char kBand[] = "Mean over heads, band between the quartiles.";

TrajectoryPanel quartile_panel(const Results& results, RunTable& table,
                               const RotationMeasure& measure) {
  const auto groups = by_run(results, results.frame("rotated"), measure.values);
  const auto place = table.add_quartiles(measure.name, groups, {.quantity = measure.name});
  const bool share = measure.unit.empty();
  const Unit unit = share ? Unit() : unit_for(groups, measure.unit);
  const Frame& rotated = results.frame("rotated");
  std::string null;
  if (rotated.has(measure.null_column))
    null =
        null_line(table.add(measure.null_column,
                            means_of(by_run(results, rotated, rotated.reals(measure.null_column)))),
                  style::kInk);
  return {
      share ? measure.label : fmt::format("{} ({})", measure.label, unit.text),
      share ? "set yrange [0:1.02]\n" : "set yrange [*:*]\n",
      with_lines(plot_series({RunTable::quartile_series("", style::kAccent, style::kCircle, place)},
                             results.runs().size(), unit.scale),
                 null),
      all_empty(groups)};
}

}  // namespace

Figure rotation_trajectory(const Results& results) {
  const Frame& rotated = results.frame("rotated");
  RunTable table(results);
  Figure figure;
  figure.title = "Planar rotation over training";
  figure.caption =
      "Per run: |r_k_a| (correlation of keys with position along a), separation_strength, "
      "bias_strength (mu_q_a alpha_k, per token) and plane_var_fraction (share of variance in the "
      "(a, b) plane). " +
      std::string(kBand);
  const auto panel = [&](const RotationMeasure& measure) {
    return quartile_panel(results, table, measure);
  };
  draw_trajectories(
      results,
      {panel({"abs_r_k_a", "|{/:Italic r}_k| along {/:Italic a}", "",
              absolute(rotated.reals("r_k_a")), "r_k_a_null"}),
       panel({"separation_strength", "separation", "", rotated.reals("separation_strength")}),
       panel({"bias_strength", "mean bias", "per token", rotated.reals("bias_strength")}),
       panel({"plane_var_fraction", "variance in plane", "", rotated.reals("plane_var_fraction")})},
      {.columns = 2}, figure);
  figure.caption += table.bars_note();
  if (rotated.has("r_k_a_null"))
    figure.caption += " Dotted line: mean |r_k_a| after shuffling positions.";
  figure.data = table.table();
  return figure;
}

Figure bias_decomposition(const Results& results) {
  const Frame& rotated = results.frame("rotated");
  RunTable table(results);
  Figure figure;
  figure.title = "What the positional bias is made of";
  figure.caption =
      "mu_q_a (mean of the queries along a), alpha_k (slope of the keys along a, per token) and "
      "their product, the bias strength. " +
      std::string(kBand);
  const auto panel = [&](const RotationMeasure& measure) {
    return quartile_panel(results, table, measure);
  };
  draw_trajectories(results,
                    {panel({"mu_q_a", "{/:Italic μ}_{q,a}", "length", rotated.reals("mu_q_a")}),
                     panel({"alpha_k", "{/:Italic α}_k", "per token", rotated.reals("alpha_k")}),
                     panel({"bias_strength", "{/:Italic μ}_{q,a} {/:Italic α}_k", "per token",
                            rotated.reals("bias_strength")})},
                    {.panel_height = 1.15}, figure);
  figure.caption += table.bars_note();
  figure.data = table.table();
  return figure;
}

Figure drift_correlations(const Results& results) {
  const Frame& rotated = results.frame("rotated");
  RunTable table(results);
  const auto q = table.add_quartiles("r_q_a", by_run(results, rotated, rotated.reals("r_q_a")),
                                     {.quantity = "r_q_a"});
  const auto k = table.add_quartiles("r_k_a", by_run(results, rotated, rotated.reals("r_k_a")),
                                     {.quantity = "r_k_a"});
  std::string lines;
  const bool null = rotated.has("r_q_a_null") && rotated.has("r_k_a_null");
  if (null)
    for (const auto& [name, colour] :
         {std::pair{"r_q_a_null", style::kQuery}, std::pair{"r_k_a_null", style::kKey}})
      lines += null_line(table.add(name, means_of(by_run(results, rotated, rotated.reals(name)))),
                         colour);
  Figure figure;
  figure.title = "Correlation with position along the drift";
  figure.caption =
      "Correlation with position of queries (blue circles) and keys (red squares) along a, the "
      "direction of covariance with position. Mean over heads, whiskers from the lower to the "
      "upper quartile.";
  figure.caption += table.bars_note();
  if (null) figure.caption += " Dotted lines: mean |r| after shuffling positions.";
  const std::vector<Series> series = {
      RunTable::quartile_series("queries", style::kQuery, style::kCircle, q),
      RunTable::quartile_series("keys", style::kKey, style::kSquare, k)};
  draw_trajectories(results,
                    {{"correlation along {/:Italic a}", "set yrange [*<0:1.02]\nset ytics 0.2\n",
                      with_lines(plot_whiskers(series), lines)}},
                    {.panel_height = 1.7, .key = key_of(series)}, figure);
  figure.data = table.table();
  return figure;
}

Figure variance_decomposition(const Results& results) {
  const Frame& rotated = results.frame("rotated");
  const auto along_a = by_run(results, rotated, rotated.reals("var_frac_a"));
  const auto along_b = by_run(results, rotated, rotated.reals("var_frac_b"));
  std::vector<double> a;
  std::vector<double> b;
  std::vector<double> rest;
  for (std::size_t i = 0; i < along_a.size(); ++i) {
    a.push_back(mean_of(along_a[i]));
    b.push_back(mean_of(along_b[i]));
    rest.push_back(1 - a.back() - b.back());
  }
  RunTable table(results);
  table.add("var_frac_a", std::move(a));
  table.add("var_frac_b", std::move(b));
  table.add("rest", std::move(rest));
  Figure figure;
  figure.title = "Where the variance lies";
  figure.caption =
      "Share of the pooled variance of queries and keys along a (drift with position), along b "
      "(separation of queries from keys) and in the rest. Means over heads.";
  const std::vector<KeyEntry> key = {{"drift, {/:Italic a}", style::kQuery, style::kSquare},
                                     {"separation, {/:Italic b}", style::kNope, style::kSquare},
                                     {"rest", style::kHair, style::kSquare}};
  const auto plot = fmt::format(
      "plot data using 2 lc rgb '{}', data using 3 lc rgb '{}', data using 4 lc rgb '{}'\n",
      key[0].colour, key[1].colour, key[2].colour);
  draw_trajectories(results,
                    {{"share of variance",
                      "set yrange [0:1]\nset ytics 0.2\nunset grid\nset boxwidth 0.78\n"
                      "set style data histograms\nset style histogram rowstacked\n",
                      plot}},
                    {.panel_height = 1.7, .key = key}, figure);
  figure.data = table.table();
  return figure;
}

Figure bias_strength(const Results& results) {
  const Frame& rotated = results.frame("rotated");
  const auto groups = by_run(results, rotated, rotated.reals("bias_strength"));
  RunTable table(results);
  const auto place = table.add_quartiles("bias_strength", groups, {.quantity = "bias_strength"});
  const Unit unit = unit_for(groups, "per token");
  const auto plot = plot_whiskers(
      {RunTable::quartile_series("", style::kAccent, style::kCircle, place)}, unit.scale);
  Figure figure;
  figure.title = "Strength of the positional bias";
  figure.caption =
      "bias_strength = mu_q_a alpha_k: how much a key's score changes per token of its position, "
      "for the mean query. Mean over heads, whiskers from the lower to the upper quartile.";
  figure.caption += table.bars_note();
  draw_trajectories(results,
                    {{fmt::format("mean bias ({})", unit.text), "set yrange [*<0:*]\n", plot}},
                    {.panel_height = 1.7}, figure);
  figure.data = table.table();
  return figure;
}

Figure slope_ratio(const Results& results) {
  const Frame& rotated = results.frame("rotated");
  const auto& q = rotated.reals("alpha_q");
  const auto& k = rotated.reals("alpha_k");
  std::vector<double> ratio;
  for (std::size_t i = 0; i < q.size(); ++i)
    ratio.push_back(q[i] == 0 ? std::nan("") : k[i] / q[i]);
  RunTable table(results);
  const auto place = table.add_quartiles("slope_ratio", by_run(results, rotated, ratio),
                                         {.quantity = "signed_slope_ratio_median"});
  Figure figure;
  figure.title = "Drift of keys over drift of queries";
  figure.caption =
      "alpha_k / alpha_q: the slope of keys on position along a over that of queries. 1 (dashed) "
      "where both drift alike. Median over heads (a few heads that hardly drift would carry a mean "
      "away), whiskers from the lower to the upper quartile." +
      table.bars_note();
  const auto plot =
      plot_whiskers({RunTable::median_series("", style::kAccent, style::kCircle, place)});
  const auto one = fmt::format(
      "set yrange [*<0:1.2<*]\n"
      "set arrow from graph 0, first 1 to graph 1, first 1 nohead dt 2 lw 0.6 lc rgb '{}' back\n",
      style::kInk);
  draw_trajectories(results, {{"median {/:Italic α}_k / {/:Italic α}_q", one, plot}},
                    {.panel_height = 1.7}, figure);
  figure.data = table.table();
  return figure;
}

}  // namespace qkscope
