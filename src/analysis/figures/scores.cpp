// Figure of benchmark scores against the loss of plasticity along the context.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "analysis/figures/run_plots.h"
#include "analysis/figures/style.h"
#include "base/core/project.h"
#include "base/tables/csv.h"

namespace qkscope {
namespace {

constexpr std::size_t kMinRuns = 3;  // a correlation needs at least this many runs

// Scores of one benchmark metric, for example "LongBench-Pro Overall".
struct BenchmarkScores {
  std::string name;
  std::map<std::size_t, double> of_run;
};

Table read_score_table(const std::string& path) {
  const auto names = read_csv_header(path);
  using enum Table::Type;
  std::vector<CsvColumn> columns = {
      {"benchmark", text}, {"model", text}, {"metric", text}, {"value", real}};
  for (const char* optional : {"model_in_study", "mode", "length_tokens"})
    if (std::ranges::find(names, optional) != names.end()) columns.push_back({optional, text});
  return read_csv_table(path, columns);
}

// Returns the index of the run with one of these names as its label or title, or nullopt.
std::optional<std::size_t> find_run_named(const AnalysisResults& results,
                                          const std::vector<std::string>& names) {
  for (std::size_t i = 0; i < results.runs().size(); ++i) {
    const auto& run = results.runs()[i];
    for (const auto& name : names)
      if (is_same_model(name, run.label) || is_same_model(name, run.title)) return i;
  }
  return std::nullopt;
}

// Reads the scores of runs that have a plasticity drop; needs kMinRuns such runs per benchmark.
std::vector<BenchmarkScores> read_benchmark_scores(const AnalysisResults& results,
                                                   const std::string& path,
                                                   const std::vector<double>& drops) {
  const Table table = read_score_table(path);
  const auto text = [&](const char* column, std::size_t row) {
    const auto* found = table.find(column);
    return found == nullptr ? std::string() : found->texts[row];
  };
  const auto& values = table.find("value")->reals;
  std::vector<BenchmarkScores> sets;
  std::map<std::string, std::size_t> places;
  for (std::size_t row = 0; row < values.size(); ++row) {
    const auto run = find_run_named(results, {text("model_in_study", row), text("model", row)});
    if (!run || std::isnan(values[row]) || std::isnan(drops[*run])) continue;
    std::string name = text("benchmark", row) + " " + text("metric", row);
    const auto length = text("length_tokens", row);
    if (!length.empty() && length != "all") name += " at " + length;
    const auto [found, fresh] = places.emplace(name + "\n" + text("mode", row), sets.size());
    if (fresh) sets.push_back({name, {}});
    sets[found->second].of_run.emplace(*run, values[row]);
  }
  std::erase_if(sets, [](const BenchmarkScores& set) { return set.of_run.size() < kMinRuns; });
  return sets;
}

// Formats the correlation and its 95 % confidence interval (Fisher z-transformation).
std::string score_title(const BenchmarkScores& set, double r) {
  const auto title = fmt::format("{}: r = {:.2f}", set.name, r);
  if (set.of_run.size() < 4 || !(std::fabs(r) < 1)) return title;
  const double half = 1.96 / std::sqrt(static_cast<double>(set.of_run.size()) - 3);
  return title + fmt::format(" ({:.2f} to {:.2f})", std::tanh(std::atanh(r) - half),
                             std::tanh(std::atanh(r) + half));
}

// One row per run and panel.
struct ScorePoints {
  Table table;
  std::vector<std::string> titles;    // one per panel
  std::vector<std::string> families;  // indexed by the column family_index
  bool bars = false;
};

ScorePoints score_points(const AnalysisResults& results, const std::vector<BenchmarkScores>& sets,
                         const std::vector<double>& drops) {
  ScorePoints points;
  points.table = empty_table(
      "integer panel, real ap_drop, real score, real ap_drop_low, real ap_drop_high, integer "
      "family_index, real r, text label, text model, text score_of");
  for (const auto& set : sets) {
    const double r =
        pearson_r(project(set.of_run, [&](const auto& entry) { return drops[entry.first]; }),
                  project(set.of_run, [](const auto& entry) { return entry.second; }));
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
    points.titles.push_back(score_title(set, r));
  }
  return points;
}

std::string plot_scores(const FigureKind& kind, std::size_t panel, const ScorePoints& points,
                        const std::vector<LegendEntry>& legend) {
  std::string text = "plot \\\n";
  if (points.bars) text += kind.fill("bars", fmt::arg("panel", panel));
  for (std::size_t i = 0; i < legend.size(); ++i)
    text +=
        kind.fill("points", fmt::arg("panel", panel), fmt::arg("family", i),
                  fmt::arg("point", legend[i].point_type), fmt::arg("colour", legend[i].colour));
  return text + kind.fill("names", fmt::arg("panel", panel));
}

}  // namespace

Figure ap_drop_vs_score(const AnalysisResults& results, const FigureKind& kind) {
  const auto& path = results.choices().scores;
  if (path.empty()) return empty_figure("it needs scores: --scores FILE.csv");
  const ResultFrame& metrics = results.frame("head_metrics");
  const auto drops = mean_by_run(metrics.group_by_run("ap_drop"));
  const auto sets = read_benchmark_scores(results, path, drops);
  if (sets.empty())
    return empty_figure(fmt::format("{} has no score of {} or more of these runs", path, kMinRuns));
  ScorePoints points = score_points(results, sets, drops);
  std::vector<LegendEntry> legend;
  for (const auto& family : points.families)
    legend.push_back(family_legend_entry(legend.size(), escape_markup(family)));
  const PanelGrid grid(grid_options(kind, sets.size()));
  Figure figure;
  grid.draw(
      figure,
      grid.legend(legend) + "unset grid\nset offsets graph 0.08, graph 0.2, graph 0.1, graph 0.1\n",
      [&](std::size_t i) {
        return PanelGrid::Panel{points.titles[i], plot_scores(kind, i, points, legend)};
      });
  figure.caption =
      kind.fill("caption", replace_control_characters(path.substr(path.rfind('/') + 1)),
                points.bars ? " Bars: 95 % interval over texts, jackknife." : "");
  figure.data = std::move(points.table);
  return figure;
}

}  // namespace qkscope
