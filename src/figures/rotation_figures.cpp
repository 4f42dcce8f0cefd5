// Figures from the planar rotation: over training, and across models.
#include <cmath>

#include <fmt/format.h>

#include "figures/figure.h"
#include "figures/run_table.h"
#include "figures/statistics.h"
#include "figures/style.h"
#include "figures/trajectory.h"

namespace qkscope {
namespace {

std::vector<double> absolute(std::vector<double> values) {
  for (double& value : values) value = std::fabs(value);
  return values;
}

// A panel with the median of one measure and the band between its quartiles.
TrajectoryPanel quartile_panel(const Results& results, RunTable& table, const std::string& name,
                               const std::vector<double>& values, TrajectoryPanel panel) {
  const int place = table.add_quartiles(name, by_run(results, results.frame("rotated"), values));
  panel.settings += "unset key\n";
  panel.plot = plot_series({RunTable::quartile_series("", style::kAccent, style::kCircle, place)},
                           results.runs().size());
  return panel;
}

// Points with whiskers over models.
void draw_whiskers(const Results& results, const std::vector<Series>& series,
                   const std::string& settings, Figure& figure) {
  figure.width = style::kColumn;
  figure.height = 2.0 + run_labels_height(results);
  figure.script = run_axis(results) + settings + plot_whiskers(series);
}

constexpr char kFree[] = "set yrange [*:*]\n";
constexpr char kShare[] = "set yrange [0:1.02]\n";

}  // namespace

Figure rotation_trajectory(const Results& results) {
  const Frame& rotated = results.frame("rotated");
  RunTable table(results);
  Figure figure;
  figure.title = "Planar rotation over training";
  figure.caption =
      "Per run: |r_k_a| (correlation of keys with position along a), separation_strength, "
      "bias_strength (mu_q_a alpha_k, per token) and plane_var_fraction (share of variance in the "
      "(a, b) plane). Median over heads, band between the quartiles.";
  const std::vector<TrajectoryPanel> panels = {
      quartile_panel(results, table, "abs_r_k_a", absolute(rotated.reals("r_k_a")),
                     {"|{/:Italic r}_k| along {/:Italic a}", kShare, ""}),
      quartile_panel(results, table, "separation_strength", rotated.reals("separation_strength"),
                     {"separation strength", kShare, ""}),
      quartile_panel(results, table, "bias_strength", rotated.reals("bias_strength"),
                     {"bias strength (per token)", kFree, ""}),
      quartile_panel(results, table, "plane_var_fraction", rotated.reals("plane_var_fraction"),
                     {"share of variance in plane", kShare, ""})};
  draw_trajectories(results, panels, 2, figure);
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
      "their product, the bias strength. Median over heads, band between the quartiles.";
  const std::vector<TrajectoryPanel> panels = {
      quartile_panel(results, table, "mu_q_a", rotated.reals("mu_q_a"), {"μ_{q,a}", kFree, ""}),
      quartile_panel(results, table, "alpha_k", rotated.reals("alpha_k"),
                     {"α_k (per token)", kFree, ""}),
      quartile_panel(results, table, "bias_strength", rotated.reals("bias_strength"),
                     {"μ_{q,a} α_k (per token)", kFree, ""})};
  draw_trajectories(results, panels, 3, figure);
  figure.data = table.table();
  return figure;
}

Figure drift_correlations(const Results& results) {
  const Frame& rotated = results.frame("rotated");
  RunTable table(results);
  const int q = table.add_quartiles("r_q_a", by_run(results, rotated, rotated.reals("r_q_a")));
  const int k = table.add_quartiles("r_k_a", by_run(results, rotated, rotated.reals("r_k_a")));
  Figure figure;
  figure.title = "Correlation with position along the drift";
  figure.caption =
      "Correlation with position of queries (blue circles) and keys (red squares) along a, the "
      "direction of covariance with position. Median over heads, whiskers from the lower to the "
      "upper quartile.";
  draw_whiskers(results,
                {RunTable::quartile_series("queries", style::kQuery, style::kCircle, q),
                 RunTable::quartile_series("keys", style::kKey, style::kSquare, k)},
                "set ylabel 'correlation along {/:Italic a}'\nset yrange [*<0:1.05]\n"
                "set key bottom right\n",
                figure);
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
  figure.width = style::kColumn;
  figure.height = 2.2 + run_labels_height(results);
  figure.script =
      run_axis(results) +
      fmt::format(
          "set ylabel 'share of variance'\nset yrange [0:1]\nset ytics 0.2\nunset grid\n"
          "set style data histograms\nset style histogram rowstacked\nset boxwidth 0.78\n"
          "set key outside bottom center horizontal samplen 0.8\n"
          "plot data using 2 title 'drift {{/:Italic a}}' lc rgb '{}', \\\n"
          "  data using 3 title 'separation {{/:Italic b}}' lc rgb '{}', \\\n"
          "  data using 4 title 'rest' lc rgb '{}'\n",
          style::kQuery, style::kNope, style::kHair);
  figure.data = table.table();
  return figure;
}

Figure bias_strength(const Results& results) {
  const Frame& rotated = results.frame("rotated");
  RunTable table(results);
  const int place = table.add_quartiles("bias_strength",
                                        by_run(results, rotated, rotated.reals("bias_strength")));
  Figure figure;
  figure.title = "Strength of the positional bias";
  figure.caption =
      "bias_strength = mu_q_a alpha_k: how much a key's score changes per token of its position, "
      "for the mean query. Median over heads, whiskers from the lower to the upper quartile.";
  draw_whiskers(results, {RunTable::quartile_series("", style::kAccent, style::kCircle, place)},
                "set ylabel 'bias strength (per token)'\nunset key\n", figure);
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
  const int place = table.add_quartiles("slope_ratio", by_run(results, rotated, ratio));
  Figure figure;
  figure.title = "Drift of keys over drift of queries";
  figure.caption =
      "alpha_k / alpha_q: the slope of keys on position along a over that of queries. 1 (dashed) "
      "where both drift alike. Median over heads, whiskers from the lower to the upper quartile.";
  draw_whiskers(
      results, {RunTable::quartile_series("", style::kAccent, style::kCircle, place)},
      fmt::format("set ylabel 'α_k / α_q'\nunset key\n"
                  "set yrange [*<0:1.2<*]\n"
                  "set arrow from graph 0, first 1 to graph 1, first 1 nohead dt 2 lw 0.6 "
                  "lc rgb '{}' back\n",
                  style::kInk),
      figure);
  figure.data = table.table();
  return figure;
}

}  // namespace qkscope
