// Figures that compare model families, and plots of benchmark scores against the plasticity drop.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "analysis/figures/run_plots.h"
#include "base/core/project.h"
#include "base/tables/csv.h"

namespace qkscope {
namespace {

constexpr int kFamilyBins = 40;
constexpr char kOneFamily[] =
    "all runs are of one family of models; 'family' of a run in the sweep's file names another";

// Heads of all runs of one model family, or of all families.
struct ModelFamilyHeads {
  std::string name = {};
  std::vector<std::size_t> rows = {};  // (heads): row of rotated.parquet
  std::vector<double> bias = {};       // (heads)
  std::vector<double> separation = {};

  void add(std::size_t row, double own_bias, double own_separation) {
    rows.push_back(row);
    bias.push_back(own_bias);
    separation.push_back(own_separation);
  }
};

// Groups heads by model family, in the order of each family's first run.
std::vector<ModelFamilyHeads> group_runs_by_family(const AnalysisResults& results) {
  std::vector<ModelFamilyHeads> families;
  std::vector<std::size_t> of_run;
  for (const auto& run : results.runs()) {
    const std::string name = run.family.empty() ? "other" : run.family;
    const auto found = std::ranges::find(families, name, &ModelFamilyHeads::name);
    of_run.push_back(static_cast<std::size_t>(found - families.begin()));
    if (found == families.end()) families.push_back({.name = name});
  }
  const ResultFrame& rotated = results.frame("rotated");
  const auto& bias = rotated.real_column("bias_strength");
  const auto& separation = rotated.real_column("separation_strength");
  for (std::size_t row = 0; row < rotated.row_count(); ++row)
    if (!std::isnan(bias[row]) && !std::isnan(separation[row]))
      families[of_run[rotated.run_indices()[row]]].add(row, bias[row], separation[row]);
  std::erase_if(families, [](const ModelFamilyHeads& family) { return family.rows.empty(); });
  return families;
}

ModelFamilyHeads join_families(const std::vector<ModelFamilyHeads>& families) {
  ModelFamilyHeads all;
  for (const auto& [name, rows, bias, separation] : families)
    for (std::size_t i = 0; i < rows.size(); ++i) all.add(rows[i], bias[i], separation[i]);
  return all;
}

// Returns the label of each head: a name for up to five outliers within the axis range, else "".
std::vector<std::string> outlier_head_labels(const AnalysisResults& results,
                                             const ModelFamilyHeads& points) {
  const ResultFrame& rotated = results.frame("rotated");
  const double low = quantile_of(points.bias, 0.005);
  const double high = quantile_of(points.bias, 0.995);
  std::vector<std::string> names(points.rows.size());
  std::size_t shown = 0;
  for (const auto i : find_outliers(points.separation, points.bias, names.size())) {
    if (points.bias[i] < low || points.bias[i] > high) continue;
    const auto row = points.rows[i];
    names[i] =
        fmt::format("{} {}.{}", shorten_text(results.runs()[rotated.run_indices()[row]].title, 14),
                    rotated.nullable_integer_column("layer")[row], rotated.head_column()[row]);
    if (++shown == 5) break;
  }
  return names;
}

// Returns the CSV with one row per head, and a legend that shows the correlation in each family.
std::pair<Table, std::vector<LegendEntry>> family_scatter_table(
    const AnalysisResults& results, const std::vector<ModelFamilyHeads>& families,
    const ModelFamilyHeads& points) {
  Table table = empty_table(
      "integer family_index, real separation_strength, real bias_strength, real r_family, integer "
      "layer, integer head, text name, text family, text model");
  std::vector<LegendEntry> legend;
  const auto names = outlier_head_labels(results, points);
  const ResultFrame& rotated = results.frame("rotated");
  const auto& layers = rotated.integer_column("layer");
  std::size_t place = 0;
  for (std::size_t i = 0; i < families.size(); ++i) {
    const auto& [name, rows, bias, separation] = families[i];
    const double r = pearson_r(separation, bias);
    legend.push_back(
        family_legend_entry(i, fmt::format("{}, {{/:Italic r}} = {:.2f}", escape_markup(name), r)));
    for (std::size_t head = 0; head < rows.size(); ++head)
      table.add({as_integer_cell(i), separation[head], bias[head], r, layers[rows[head]],
                 rotated.head_column()[rows[head]], names[place++],
                 replace_control_characters(name),
                 results.run_label(rotated.run_indices()[rows[head]])});
  }
  return {std::move(table), std::move(legend)};
}

constexpr std::size_t kMinRuns = 3;  // a correlation needs at least this many runs

// Scores of one benchmark metric, for example "LongBench-Pro Overall".
struct BenchmarkScores {
  std::string name;
  std::map<std::size_t, double> of_run;
};

// Reads the benchmark scores of the runs; drops benchmarks with scores of fewer than kMinRuns runs.
std::vector<BenchmarkScores> read_benchmark_scores(const AnalysisResults& results,
                                                   const std::string& path,
                                                   const std::vector<double>& drops) {
  const auto names = read_csv_header(path);
  std::vector<CsvColumn> columns = {{"benchmark", Table::Type::text},
                                    {"model", Table::Type::text},
                                    {"metric", Table::Type::text},
                                    {"value", Table::Type::real}};
  for (const char* optional : {"model_in_study", "mode", "length_tokens"})
    if (std::ranges::find(names, optional) != names.end())
      columns.push_back({optional, Table::Type::text});
  const Table table = read_csv_table(path, columns);
  const auto text = [&](const char* column, std::size_t row) {
    const auto* found = table.find(column);
    return found == nullptr ? std::string() : found->texts[row];
  };
  const auto& values = table.find("value")->reals;
  std::vector<BenchmarkScores> sets;
  std::map<std::string, std::size_t> places;
  for (std::size_t row = 0; row < values.size(); ++row) {
    const auto found_run = std::ranges::find_if(results.runs(), [&](const RunInfo& run) {
      return std::ranges::any_of(std::array{"model_in_study", "model"}, [&](const char* column) {
        const auto name = text(column, row);
        return is_same_model(name, run.label) || is_same_model(name, run.title);
      });
    });
    const auto run = static_cast<std::size_t>(found_run - results.runs().begin());
    if (found_run == results.runs().end() || std::isnan(values[row]) || std::isnan(drops[run]))
      continue;
    std::string name = text("benchmark", row) + " " + text("metric", row);
    const auto length = text("length_tokens", row);
    if (!length.empty() && length != "all") name += " at " + length;
    const auto [found, fresh] = places.emplace(name + "\n" + text("mode", row), sets.size());
    if (fresh) sets.push_back({name, {}});
    sets[found->second].of_run.emplace(run, values[row]);
  }
  std::erase_if(sets, [](const BenchmarkScores& set) { return set.of_run.size() < kMinRuns; });
  return sets;
}

// Formats the correlation and its 95 % confidence interval (Fisher z-transformation).
std::string benchmark_title(const BenchmarkScores& set, double r) {
  auto title = fmt::format("{}: r = {:.2f}", set.name, r);
  if (set.of_run.size() < 4 || !(std::fabs(r) < 1)) return title;
  const double half = 1.96 / std::sqrt(static_cast<double>(set.of_run.size()) - 3);
  return title + fmt::format(" ({:.2f} to {:.2f})", std::tanh(std::atanh(r) - half),
                             std::tanh(std::atanh(r) + half));
}

// Points of benchmark scatter plots: one row per run and panel.
struct BenchmarkPoints {
  Table table;
  std::vector<std::string> titles;    // one per panel
  std::vector<std::string> families;  // indexed by the column family_index
  bool bars = false;
};

BenchmarkPoints benchmark_points(const AnalysisResults& results,
                                 const std::vector<BenchmarkScores>& sets,
                                 const std::vector<double>& drops) {
  BenchmarkPoints points;
  points.table = empty_table(
      "integer panel, real ap_drop, real score, real ap_drop_low, real ap_drop_high, integer "
      "family_index, real r, text label, text model, text score_of");
  for (const auto& set : sets) {
    const double r =
        pearson_r(to_vector(set.of_run, [&](const auto& entry) { return drops[entry.first]; }),
                  to_vector(set.of_run, [](const auto& entry) { return entry.second; }));
    for (const auto& [run, score] : set.of_run) {
      const auto& who = results.runs()[run];
      const auto interval = results.confidence_interval(run, "ap_drop");
      points.bars = points.bars || !std::isnan(interval.low);
      const auto family = std::ranges::find(points.families, who.family);
      const std::int64_t family_index = family - points.families.begin();
      if (family == points.families.end()) points.families.push_back(who.family);
      points.table.add({std::ssize(points.titles), drops[run], score, interval.low, interval.high,
                        family_index, r, shorten_text(who.title, 18),
                        replace_control_characters(who.label),
                        replace_control_characters(set.name)});
    }
    points.titles.push_back(benchmark_title(set, r));
  }
  return points;
}

}  // namespace

Figure draw_bias_histogram(const AnalysisResults& results, const FigureKind& kind) {
  const auto families = group_runs_by_family(results);
  if (families.size() < 2) return make_empty_figure(families.empty() ? "" : kOneFamily);
  const auto all = join_families(families).bias;
  HistogramBins bins{quantile_of(all, 0.01), quantile_of(all, 0.99), kFamilyBins};
  if (!(bins.high > bins.low)) bins.high = bins.low + 1;
  const auto unit = choose_axis_unit({all}, "per token");
  Figure figure;
  figure.data =
      empty_table("integer panel, real low, real high, real fraction, integer heads, text family");
  double tallest = 0;
  for (std::size_t i = 0; i < families.size(); ++i) {
    const auto counts = bins.count_per_bin(families[i].bias);
    for (int bin = 0; bin < kFamilyBins; ++bin) {
      const auto count = counts[static_cast<std::size_t>(bin)];
      const double fraction =
          static_cast<double>(count) / static_cast<double>(families[i].rows.size());
      tallest = std::max(tallest, fraction);
      figure.data.add({as_integer_cell(i), bins.lower_edge(bin), bins.lower_edge(bin + 1), fraction,
                       count, replace_control_characters(families[i].name)});
    }
  }
  auto options = grid_options(kind, families.size());
  options.x_label = fmt::format(fmt::runtime(options.x_label), unit.text);
  const PanelGrid grid(options);
  const auto settings = kind.format(
      "settings", fmt::arg("low", bins.low * unit.scale), fmt::arg("high", bins.high * unit.scale),
      fmt::arg("x_step", nice_tick_step((bins.high - bins.low) * unit.scale, 4)),
      fmt::arg("top", 1.08 * tallest), fmt::arg("y_step", nice_tick_step(tallest, 3)));
  grid.draw(figure, settings, [&](std::size_t i) -> PanelGrid::Panel {
    const auto& bias = families[i].bias;
    const auto positive = std::ranges::count_if(bias, [](double x) { return x > 0; });
    const double share = static_cast<double>(positive) / static_cast<double>(bias.size());
    return {fmt::format("{}: {:.0f} % positive", families[i].name, 100 * share),
            kind.format("panel", fmt::arg("panel", i), fmt::arg("mean", mean_of(bias) * unit.scale),
                        fmt::arg("scale", unit.scale),
                        fmt::arg("colour", family_legend_entry(i, "").colour))};
  });
  return figure;
}

Figure draw_family_scatter(const AnalysisResults& results, const FigureKind& kind) {
  const auto families = group_runs_by_family(results);
  if (families.size() < 2) return make_empty_figure(families.empty() ? "" : kOneFamily);
  const ModelFamilyHeads points = join_families(families);
  auto [table, entries] = family_scatter_table(results, families, points);
  const auto unit = choose_axis_unit({points.bias}, "per token");
  // Clip the axis at the 0.5th and 99.5th percentile: outliers would compress all other heads.
  const double low = quantile_of(points.bias, 0.005) * unit.scale;
  const double high = quantile_of(points.bias, 0.995) * unit.scale;
  const double margin = std::max(0.05 * (high - low), 1e-12);
  const Legend legend(entries, style::kColumn);
  Figure figure;
  figure.data = std::move(table);
  figure.height = 0.4 + 2.0 + legend.height_inches() + 0.06;
  figure.script =
      margin_commands(0.52, style::kColumn - 0.08, 0.36 + legend.height_inches(),
                      figure.height - 0.06) +
      legend.label_commands() +
      kind.format("script", fmt::arg("low", low - margin), fmt::arg("high", high + margin),
                  fmt::arg("below", 0.1 + legend.height_inches()), fmt::arg("unit", unit.text));
  for (std::size_t i = 0; i < families.size(); ++i)
    figure.script += kind.format("points", fmt::arg("family", i), fmt::arg("scale", unit.scale),
                                 fmt::arg("point", entries[i].point_type),
                                 fmt::arg("colour", entries[i].colour.substr(1)));
  figure.script += kind.format("names", fmt::arg("scale", unit.scale));
  figure.caption = kind.format("caption", pearson_r(points.separation, points.bias));
  return figure;
}

Figure draw_ap_drop_vs_score(const AnalysisResults& results, const FigureKind& kind) {
  const auto& path = results.draw_options().scores;
  if (path.empty()) return make_empty_figure("it needs scores: --scores FILE.csv");
  const ResultFrame& metrics = results.frame("head_metrics");
  const auto drops = mean_by_run(metrics.group_by_run("ap_drop"));
  const auto sets = read_benchmark_scores(results, path, drops);
  if (sets.empty())
    return make_empty_figure(
        fmt::format("{} has no score of {} or more of these runs", path, kMinRuns));
  BenchmarkPoints points = benchmark_points(results, sets, drops);
  std::vector<LegendEntry> legend;
  for (const auto& family : points.families)
    legend.push_back(family_legend_entry(legend.size(), escape_markup(family)));
  const PanelGrid grid(grid_options(kind, sets.size()));
  Figure figure;
  grid.draw(figure,
            grid.legend_commands(legend) +
                "unset grid\nset offsets graph 0.08, graph 0.2, graph 0.1, graph 0.1\n",
            [&](std::size_t panel) -> PanelGrid::Panel {
              std::string plot = "plot \\\n";
              if (points.bars) plot += kind.format("bars", fmt::arg("panel", panel));
              for (std::size_t i = 0; i < legend.size(); ++i)
                plot += kind.format("points", fmt::arg("panel", panel), fmt::arg("family", i),
                                    fmt::arg("point", legend[i].point_type),
                                    fmt::arg("colour", legend[i].colour));
              return {points.titles[panel], plot + kind.format("names", fmt::arg("panel", panel))};
            });
  figure.caption =
      kind.format("caption", replace_control_characters(path.substr(path.rfind('/') + 1)),
                  points.bars ? " Bars: 95 % interval over texts, jackknife." : "");
  figure.data = std::move(points.table);
  return figure;
}

}  // namespace qkscope
