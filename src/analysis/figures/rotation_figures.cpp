// Figures of the planar rotation, over training and across models. rotation_trajectory_rows() lists
// the figures that show means and quartiles of columns of rotated.parquet.
#include <cmath>

#include <fmt/format.h>

#include "analysis/figures/registry.h"
#include "analysis/figures/run_axis.h"
#include "analysis/figures/run_series.h"
#include "analysis/figures/style.h"

namespace qkscope {
namespace {

// A column of rotated.parquet as one panel.
struct RotationMeasure {
  const char* column;
  const char* label;  // gnuplot markup
  const char* unit;   // empty for fractions and correlations, whose axis runs from 0 to 1
  const char* null_column = "";  // the same measure with shuffled positions
  bool absolute = false;
};

struct RotationTrajectory {
  const char* name;
  const char* title;
  const char* what;  // first sentences of the caption
  std::vector<RotationMeasure> measures;
  TrajectoryLayout layout;
  const char* null_note = "";
};

const std::vector<RotationTrajectory>& rotation_trajectory_rows() {
  static const std::vector<RotationTrajectory> kRows = {
      {"rotation_trajectory",
       "Planar rotation over training",
       "Per run: |r_k_a| (correlation of keys with position along a), separation_strength, "
       "bias_strength (mu_q_a alpha_k, per token) and plane_var_fraction (share of variance in the "
       "(a, b) plane).",
       {{"r_k_a", "|{/:Italic r}_k| along {/:Italic a}", "", "r_k_a_null", true},
        {"separation_strength", "separation", ""},
        {"bias_strength", "mean bias", "per token"},
        {"plane_var_fraction", "variance in plane", ""}},
       {.columns = 2},
       " Dotted line: mean |r_k_a| after shuffling positions."},
      {"bias_decomposition",
       "What the positional bias is made of",
       "mu_q_a (mean of the queries along a), alpha_k (slope of the keys along a, per token) and "
       "their product, the bias strength.",
       {{"mu_q_a", "{/:Italic μ}_{q,a}", "length"},
        {"alpha_k", "{/:Italic α}_k", "per token"},
        {"bias_strength", "{/:Italic μ}_{q,a} {/:Italic α}_k", "per token"}},
       {.panel_height = 1.15}}};
  return kRows;
}

TrajectoryPanel quartile_panel(const Results& results, RunTable& table,
                               const RotationMeasure& measure) {
  const Frame& rotated = results.frame("rotated");
  const auto& values = rotated.reals(measure.column);
  const auto groups = by_run(results, rotated, measure.absolute ? absolute(values) : values);
  const auto name = fmt::format("{}{}", measure.absolute ? "abs_" : "", measure.column);
  const auto place = table.add_quartiles(name, groups, {.quantity = name});
  const bool share = std::string_view(measure.unit).empty();
  const Unit unit = share ? Unit() : unit_for(groups, measure.unit);
  std::string null;
  if (rotated.has(measure.null_column))
    null = table.add_null(rotated, measure.null_column, style::kInk);
  return {
      share ? measure.label : fmt::format("{} ({})", measure.label, unit.text),
      share ? "set yrange [0:1.02]\n" : "set yrange [*:*]\n",
      with_lines(plot_series({RunTable::quartile_series("", style::kAccent, style::kCircle, place)},
                             results.runs().size(), unit.scale),
                 null),
      all_empty(groups)};
}

Figure rotation_trajectory(const Results& results, const RotationTrajectory& row) {
  RunTable table(results);
  std::vector<TrajectoryPanel> panels;
  bool null = false;
  for (const auto& measure : row.measures) {
    panels.push_back(quartile_panel(results, table, measure));
    null = null || results.frame("rotated").has(measure.null_column);
  }
  Figure figure;
  figure.title = row.title;
  figure.caption = fmt::format("{} Mean over heads, band between the quartiles.{}{}", row.what,
                               table.bars_note(), null ? row.null_note : "");
  return table.draw(std::move(figure), panels, row.layout);
}

}  // namespace

std::vector<FigureKind> rotation_trajectories() {
  std::vector<FigureKind> kinds;
  for (const auto& row : rotation_trajectory_rows())
    kinds.push_back({row.name,
                     {"rotated"},
                     [&row](const Results& results) { return rotation_trajectory(results, row); },
                     Runs::several});
  return kinds;
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
      lines += table.add_null(rotated, name, colour);
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
  return table.draw(std::move(figure),
                    {{"correlation along {/:Italic a}", "set yrange [*<0:1.02]\nset ytics 0.2\n",
                      with_lines(plot_whiskers(series), lines)}},
                    {.panel_height = 1.7, .key = key_of(series)});
}

Figure variance_decomposition(const Results& results) {
  const Frame& rotated = results.frame("rotated");
  const auto a = means_of(by_run(results, rotated, rotated.reals("var_frac_a")));
  const auto b = means_of(by_run(results, rotated, rotated.reals("var_frac_b")));
  std::vector<double> rest;
  for (std::size_t i = 0; i < a.size(); ++i) rest.push_back(1 - a[i] - b[i]);
  RunTable table(results);
  table.add("var_frac_a", a);
  table.add("var_frac_b", b);
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
  return table.draw(std::move(figure), {{"share of variance", kStackedBars, plot}},
                    {.panel_height = 1.7, .key = key});
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
  return table.draw(std::move(figure),
                    {{fmt::format("mean bias ({})", unit.text), "set yrange [*<0:*]\n", plot}},
                    {.panel_height = 1.7});
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
  return table.draw(std::move(figure), {{"median {/:Italic α}_k / {/:Italic α}_q", one, plot}},
                    {.panel_height = 1.7});
}

}  // namespace qkscope
