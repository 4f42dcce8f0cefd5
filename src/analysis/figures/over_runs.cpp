// Figures of head classes, variance, and RoPE against NoPE layers.
#include <algorithm>

#include <fmt/format.h>

#include "analysis/figures/run_plots.h"
#include "analysis/figures/style.h"

namespace qkscope {
namespace {

// gnuplot settings of a panel with stacked bars of fractions.
constexpr char kStackedBars[] =
    "set yrange [0:1]\nset ytics 0.2\nunset grid\nset boxwidth 0.78\n"
    "set style data histograms\nset style histogram rowstacked\n";

// Draws the explained variance of PC0 to PC9 of a single run as bars, with the standard deviation
// over heads.
Figure explained_variance_of_single_run(const AnalysisResults& results, const FigureKind& kind) {
  const ResultFrame& qk = results.frame("qk");
  const auto& pcs = qk.integer_column("pc");
  Figure figure;
  figure.data = empty_table("integer pc, real mean, real std, integer heads");
  for (std::int64_t pc = 0; pc < 10; ++pc) {
    const auto values = qk.group_by_run("explained_variance", [&](std::size_t row) {
                            return pcs[row] == pc;
                          }).front();
    if (values.empty()) continue;
    figure.data.add({pc, mean_of(values), standard_deviation_of(values), std::ssize(values)});
  }
  figure.script = kind.fill("script_of_one");
  figure.caption = kind.text("caption_of_one");
  return figure;
}

std::string class_caption(const AnalysisResults& results) {
  return fmt::format(
      "Classes come from the first component's r_q and |r_k|; the bounds of low and high are {}. "
      "Position-dominated is high in both, Q-positional high in r_q and low in |r_k|, K-positional "
      "the reverse, content-focused low in both, mixed the rest. Heads without a class are not "
      "counted.",
      taxonomy_bounds_text(results));
}

// Counts the heads of each class. The table has no rows if no head has a class.
Table class_table(const ResultFrame& heads) {
  const auto& classes = heads.text_column("class");
  Table table =
      empty_table("integer row, integer heads, integer nope_heads, real fraction, text class");
  const auto total = std::ranges::count_if(classes, [](const auto& name) { return !name.empty(); });
  if (total == 0) return table;
  for (const auto& c : style::kClasses) {
    std::int64_t here = 0;
    std::int64_t without = 0;
    for (std::size_t i = 0; i < classes.size(); ++i)
      if (classes[i] == c.name) {
        ++here;
        without += heads.is_nope(i) ? 1 : 0;
      }
    table.add({table.rows(), here, without, static_cast<double>(here) / static_cast<double>(total),
               std::string(c.name)});
  }
  return table;
}

std::string plot_class_bars(const FigureKind& kind, bool nope) {
  std::string text = "plot ";
  for (std::size_t row = 0; row < std::size(style::kClasses); ++row)
    text +=
        kind.fill("bars", fmt::arg("row", row), fmt::arg("colour", style::kClasses[row].colour)) +
        "\n  ";
  if (nope) text += kind.fill("nope_bars") + "\n  ";
  return text + kind.fill("counts");
}

}  // namespace

Figure taxonomy_evolution(const AnalysisResults& results, const FigureKind& kind) {
  TrajectoryTable table(results);
  std::string plots = "plot \\\n";
  std::vector<LegendEntry> legend;
  std::vector<double> total;  // heads with a class in each run
  for (const auto& c : style::kClasses) {
    const auto members = mark_class_members_by_run(results, c.name);
    total.clear();
    for (const auto& run : members) total.push_back(static_cast<double>(run.size()));
    legend.push_back({c.title, c.colour, style::kSquare});
    plots += fmt::format("  data using {} lc rgb '{}'{}\n", table.add(c.name, mean_by_run(members)),
                         c.colour, &c == std::end(style::kClasses) - 1 ? "" : ", \\");
  }
  table.add("all_heads", total);
  Figure figure;
  figure.caption = kind.fill("caption", class_caption(results));
  return table.draw(std::move(figure), {{"fraction of heads", kStackedBars, plots}},
                    {.legend = legend});
}

Figure class_counts(const AnalysisResults& results, const FigureKind& kind) {
  const ResultFrame& heads = results.frame("taxonomy");
  const bool nope = heads.has_nope_rows();
  Figure figure;
  figure.data = class_table(heads);
  if (figure.data.rows() == 0) return {};
  std::int64_t total = 0;
  for (const auto count : figure.data.find("heads")->integers) total += count;
  std::string tics;
  int row = 0;
  for (const auto& c : style::kClasses) {
    tics += fmt::format("{}'{}' {}", row > 0 ? ", " : "", c.title, -row);
    ++row;
  }
  figure.height = 1.5;
  figure.script = margin_commands(1.15, style::kColumn - 0.1, 0.36, 1.44) +
                  kind.fill("script", fmt::arg("tics", tics), fmt::arg("bottom", 0.5 - row),
                            fmt::arg("right", 1.4 * static_cast<double>(total))) +
                  plot_class_bars(kind, nope);
  figure.caption = kind.fill("caption", results.run_title(), class_caption(results),
                             nope ? " Hatched: heads of NoPE layers." : "");
  return figure;
}

Figure explained_variance(const AnalysisResults& results, const FigureKind& kind) {
  return results.has_single_run() ? explained_variance_of_single_run(results, kind)
                                  : trajectory(results, kind);
}

Figure variance_decomposition(const AnalysisResults& results, const FigureKind&) {
  const ResultFrame& rotated = results.frame("rotated");
  const auto a = mean_by_run(rotated.group_by_run("var_frac_a"));
  const auto b = mean_by_run(rotated.group_by_run("var_frac_b"));
  std::vector<double> rest;
  for (std::size_t i = 0; i < a.size(); ++i) rest.push_back(1 - a[i] - b[i]);
  TrajectoryTable table(results);
  table.add("var_frac_a", a);
  table.add("var_frac_b", b);
  table.add("rest", std::move(rest));
  const std::vector<LegendEntry> legend = {
      {"drift, {/:Italic a}", style::kQuery, style::kSquare},
      {"separation, {/:Italic b}", style::kNope, style::kSquare},
      {"rest", style::kHair, style::kSquare}};
  const auto plot = fmt::format(
      "plot data using 2 lc rgb '{}', data using 3 lc rgb '{}', data using 4 lc rgb '{}'\n",
      legend[0].colour, legend[1].colour, legend[2].colour);
  return table.draw({}, {{"share of variance", kStackedBars, plot}}, {.legend = legend});
}

Figure nope_vs_rope(const AnalysisResults& results, const FigureKind& kind) {
  const ResultFrame& qk = results.frame("qk");
  const ResultFrame& metrics = results.frame("head_metrics");
  TrajectoryTable table(results);
  std::vector<PlotSeries> signal;
  std::vector<PlotSeries> plasticity;
  for (const std::string rope : {"rope", "nope"}) {
    const std::string title = rope == "nope" ? "NoPE" : "RoPE";
    const char* colour = rope == "nope" ? style::kNope : style::kRope;
    const auto group = [&](const ResultFrame& frame, const char* column) {
      return frame.group_by_run(column, [&](std::size_t row) {
        return frame.is_first_component(row) && frame.text_column("rope")[row] == rope;
      });
    };
    if (std::ranges::any_of(group(qk, "r_q"), [](const auto& heads) { return heads.empty(); }))
      return empty_figure("a run has only layers of one kind (RoPE or NoPE)");
    const auto add = [&](const ResultFrame& frame, const char* column, const char* name,
                         const LegendEntry& look) {
      return table.add_measure(
          {rope + name, SummaryStatistic::mean_and_deviation, look, column, rope},
          group(frame, column));
    };
    signal.push_back(add(qk, "r_q", "_r_q", {title + ", {/:Italic r}_q", colour, style::kCircle}));
    signal.push_back(add(qk, "r_k", "_r_k", {title + ", {/:Italic r}_k", colour, style::kSquare}));
    plasticity.push_back(
        add(metrics, "ap_profile_overall", "_ap", {title, colour, style::kCircle}));
  }
  Figure figure;
  figure.caption = kind.fill("caption", table.error_bars_note());
  return table.draw(std::move(figure),
                    {{"correlation with position", "set yrange [*<0:1.02]\nset ytics 0.25\n",
                      plot_series(signal, results.runs().size())},
                     {"attention plasticity", "set yrange [0:1.02]\n",
                      plot_series(plasticity, results.runs().size())}},
                    {.panel_height = 1.35, .legend = legend_entries(signal)});
}

}  // namespace qkscope
