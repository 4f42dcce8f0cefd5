#include "analysis/figures/run_plots.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "base/core/numbers.h"
#include "base/core/project.h"
#include "base/core/text.h"

namespace qkscope {
namespace {

constexpr std::size_t kLongestLabel = 22;

constexpr double kPhaseLine = 0.085;  // line height in inches

// A sequence of runs with the same phase.
struct TrainingPhase {
  std::string name;
  std::size_t first;  // first run
  std::size_t last;
  std::vector<std::string> lines = {};  // the name, broken at spaces
};

// Returns the training phases. Phase names are broken into lines that fit an axis of this width.
std::vector<TrainingPhase> training_phases_of_runs(const AnalysisResults& results, double inches) {
  std::vector<TrainingPhase> phases;
  const auto& runs = results.runs();
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (phases.empty() || phases.back().name != runs[i].phase)
      phases.push_back({runs[i].phase, i, i});
    phases.back().last = i;
  }
  for (auto& phase : phases) {
    const double width = inches * static_cast<double>(phase.last - phase.first + 1) /
                         static_cast<double>(runs.size());
    for (const auto& word : split(replace_control_characters(phase.name), ' ')) {
      auto& lines = phase.lines;
      if (!lines.empty() &&
          text_width_inches(lines.back() + " " + word, style::kPhase) + 0.05 <= width)
        lines.back() += " " + word;
      else
        lines.push_back(word);
    }
  }
  return phases;
}

// Returns gnuplot tick labels "'TITLE' POSITION, ..." with run i at position i * step.
std::string run_tick_labels(const AnalysisResults& results, int step) {
  std::string tics;
  int place = 0;
  for (const auto& run : results.runs()) {
    tics += fmt::format("{}{} {}", tics.empty() ? "" : ", ",
                        gnuplot_literal(shorten_text(run.title, kLongestLabel)), place);
    place += step;
  }
  return tics;
}

// Returns gnuplot commands for a horizontal axis with run i at x = i: range, dashed lines between
// phases, and optionally run titles below (`labels`) and phase names above (`phase_labels`).
std::string run_axis_commands(const AnalysisResults& results, double inches, bool labels,
                              bool phase_labels) {
  const auto& runs = results.runs();
  std::string text = fmt::format("set xrange [-0.5:{}]\n", static_cast<double>(runs.size()) - 0.5);
  if (labels)
    text += fmt::format("set xtics format '%g' {} ({}) font ',{}'\n",
                        runs.size() > 3 ? "rotate by 40 right offset 0.4, 0.15" : "norotate center",
                        run_tick_labels(results, 1), style::kSmall);
  else
    text += "set xtics norotate 1 format ''\n";
  const auto phases = training_phases_of_runs(results, inches);
  for (std::size_t i = 1; i < phases.size(); ++i)
    text += fmt::format(
        "set arrow from first {0}, graph 0 to first {0}, graph 1 nohead dashtype 2 lw 0.6 lc rgb "
        "'{1}' back\n",
        static_cast<double>(phases[i].first) - 0.5, style::kInk);
  if (!phase_labels || phases.size() < 2) return text;
  for (const auto& [name, first, last, lines] : phases)
    for (std::size_t i = 0; i < lines.size(); ++i)
      text += fmt::format(
          "set label {} at first {}, graph 1 offset character 0, screen {:.4f}/height center font "
          "',{}' textcolor rgb '{}'\n",
          gnuplot_literal(lines[i]), 0.5 * static_cast<double>(first + last),
          0.06 + kPhaseLine * static_cast<double>(lines.size() - 1 - i), style::kPhase,
          style::kInk);
  return text;
}

// Height in inches of the phase names above an axis that is `inches` wide.
double phase_names_height(const AnalysisResults& results, double inches) {
  const auto phases = training_phases_of_runs(results, inches);
  if (phases.size() < 2) return 0.08;
  std::size_t most = 1;
  for (const auto& phase : phases) most = std::max(most, phase.lines.size());
  return 0.1 + kPhaseLine * static_cast<double>(most);
}

// Height in inches of the run titles below an axis drawn with run_axis_commands().
double run_labels_height(const AnalysisResults& results) {
  if (results.runs().size() <= 3) return 0.3;
  double longest = 0;
  for (const auto& run : results.runs())
    longest =
        std::max(longest, text_width_inches(shorten_text(run.title, kLongestLabel), style::kSmall));
  return 0.18 + 0.64 * longest;
}

constexpr double kLeft = 0.54;   // inches left of a panel, for tick labels and the axis label
constexpr double kRight = 0.08;  // inches right of a panel
constexpr double kGap = 0.14;    // inches between rows of panels

std::string multiply_expression(const std::string& expression, double scale) {
  return scale == 1 ? expression : fmt::format("({}) * {}", expression, scale);
}

// Plots a line from `low` to `high` as a vector: gnuplot's error bars leave a gap around the point.
std::string vertical_line_clause(const std::string& x, const std::string& low,
                                 const std::string& high, double scale, const std::string& look) {
  return fmt::format("  data using ({}):({}):(0):({}) with vectors {}, \\\n", x,
                     multiply_expression(low, scale),
                     multiply_expression(fmt::format("({}) - ({})", high, low), scale), look);
}

std::string whisker_clause(const std::string& x, const PlotSeries& s, double scale) {
  return vertical_line_clause(x, s.low, s.high, scale,
                              fmt::format("nohead lw 1.2 lc rgb '{}'", s.look.colour));
}

// Plots the confidence interval of the mean. Caps distinguish it from the spread over heads.
std::string error_bar_clause(const std::string& x, const PlotSeries& s, double scale) {
  if (s.bar_low.empty()) return "";
  return vertical_line_clause(
      x, s.bar_low, s.bar_high, scale,
      fmt::format("heads nofilled size screen 0.007,90 lw 0.8 lc rgb '{}'", style::kInk));
}

}  // namespace

std::string y_axis_commands_for_runs(const AnalysisResults& results) {
  return fmt::format("set yrange [{}:0.5]\nset ytics ({}) scale 0 font ',{}'\n",
                     0.5 - static_cast<double>(results.runs().size()), run_tick_labels(results, -1),
                     style::kSmall);
}

AxisUnit choose_axis_unit(const HeadValuesByRun& groups, const std::string& unit) {
  double largest = 0;
  for (const auto& group : groups)
    for (const double fraction : {0.25, 0.75})
      if (!group.empty()) largest = std::max(largest, std::fabs(quantile_of(group, fraction)));
  if (!(largest > 0) || (largest >= 0.05 && largest < 1000)) return {1, unit};
  const int power = static_cast<int>(std::floor(std::log10(largest)));
  return {std::pow(10, -power), fmt::format("10^{{{}}} {}", power, unit)};
}

std::string line_plot_command(const std::vector<PlotSeries>& series, std::size_t runs, double scale,
                              const std::string& below) {
  std::string text = "plot \\\n" + below;
  for (const auto& s : series)
    if (runs > 1)
      text += fmt::format(
          "  data using 1:({}):({}) with filledcurves fill transparent solid 0.16 noborder lc rgb "
          "'{}', \\\n",
          multiply_expression(s.low, scale), multiply_expression(s.high, scale), s.look.colour);
    else
      text += whisker_clause("$1", s, scale);
  for (const auto& s : series) text += error_bar_clause("$1", s, scale);
  for (std::size_t i = 0; i < series.size(); ++i) {
    const auto& s = series[i];
    text +=
        fmt::format("  data using 1:({}) with linespoints lw 1.4 pt {} ps 0.5*mark lc rgb '{}'{}\n",
                    multiply_expression(s.middle, scale), s.look.point_type, s.look.colour,
                    i + 1 < series.size() ? ", \\" : "");
  }
  return text;
}

std::string whisker_plot_command(const std::vector<PlotSeries>& series, double scale,
                                 const std::string& below) {
  std::string text = "plot \\\n" + below;
  const double step = series.size() > 1 ? 0.22 : 0;
  for (std::size_t i = 0; i < series.size(); ++i) {
    const auto& s = series[i];
    const auto x = fmt::format(
        "$1 + {}", step * (static_cast<double>(i) - 0.5 * static_cast<double>(series.size() - 1)));
    text += whisker_clause(x, s, scale) + error_bar_clause(x, s, scale);
    text += fmt::format("  data using ({}):({}) with points pt {} ps 0.6*mark lc rgb '{}'{}\n", x,
                        multiply_expression(s.middle, scale), s.look.point_type, s.look.colour,
                        i + 1 < series.size() ? ", \\" : "");
  }
  return text;
}

std::vector<LegendEntry> legend_entries(const std::vector<PlotSeries>& series) {
  std::vector<LegendEntry> entries;
  for (const auto& s : series)
    if (!s.look.title.empty()) entries.push_back(s.look);
  return entries;
}

HeadValuesByRun class_membership_by_run(const AnalysisResults& results, const std::string& name) {
  const ResultFrame& frame = results.frame("taxonomy");
  const auto& classes = frame.text_column("class");
  std::vector<double> is(frame.row_count(), kNan);
  for (std::size_t row = 0; row < frame.row_count(); ++row)
    if (!classes[row].empty()) is[row] = classes[row] == name ? 1 : 0;
  return frame.group_by_run(is);
}

std::vector<double> mean_by_run(const HeadValuesByRun& groups) {
  return to_vector(groups, mean_of);
}

int TrajectoryTable::add_column(const std::string& name, std::vector<double> values) {
  columns_.push_back({name, Table::Type::real, {}, std::move(values), {}});
  return static_cast<int>(columns_.size()) + 1;  // column 1 is the index of the run
}

PlotSeries TrajectoryTable::add_line_series(const std::string& name, std::vector<double> values,
                                            LegendEntry look) {
  const auto column = fmt::format("${}", add_column(name, std::move(values)));
  return {std::move(look), column, column, column};
}

PlotSeries TrajectoryTable::add_measure_series(const TrajectoryMeasure& measure,
                                               const HeadValuesByRun& groups) {
  const auto quantile = [](double fraction) {
    return [fraction](const auto& group) { return quantile_of(group, fraction); };
  };
  const auto add_statistic = [&](const char* ending, const auto& statistic) {
    return fmt::format("${}", add_column(measure.name + ending, to_vector(groups, statistic)));
  };
  PlotSeries series{measure.look, "", "", ""};
  if (measure.summary == SummaryStatistic::mean ||
      measure.summary == SummaryStatistic::mean_and_deviation) {
    series.middle = series.low = series.high = add_statistic("_mean", mean_of);
    const auto deviation = add_statistic("_std", standard_deviation_of);
    if (measure.summary == SummaryStatistic::mean_and_deviation) {
      series.low = fmt::format("{} - {}", series.middle, deviation);
      series.high = fmt::format("{} + {}", series.middle, deviation);
    }
  } else {
    series.middle = add_statistic("_median", quantile(0.5));
    series.low = add_statistic("_q25", quantile(0.25));
    series.high = add_statistic("_q75", quantile(0.75));
    const auto mean = add_statistic("_mean", mean_of);
    if (measure.summary == SummaryStatistic::mean_and_quartiles) series.middle = mean;
  }
  add_statistic("_heads", [](const auto& group) { return static_cast<double>(group.size()); });
  add_error_bars(measure, series);
  return series;
}

void TrajectoryTable::add_error_bars(const TrajectoryMeasure& measure, PlotSeries& series) {
  std::vector<double> low;
  std::vector<double> high;
  for (std::size_t i = 0; i < results_.runs().size(); ++i) {
    const auto interval = results_.confidence_interval(i, measure.quantity, measure.heads);
    low.push_back(interval.low);
    high.push_back(interval.high);
  }
  if (std::ranges::all_of(low, [](double value) { return std::isnan(value); })) return;
  bars_ = true;
  series.bar_low = fmt::format("${}", add_column(measure.name + "_low", std::move(low)));
  series.bar_high = fmt::format("${}", add_column(measure.name + "_high", std::move(high)));
}

std::string TrajectoryTable::error_bars_note() const {
  return bars_ ? " Bars with caps: 95 % interval over texts, jackknife." : "";
}

Figure TrajectoryTable::draw(Figure figure, const std::vector<TrajectoryPanel>& panels,
                             const TrajectoryLayout& layout) const {
  const int count = static_cast<int>(panels.size());
  const int rows = (count + layout.columns - 1) / layout.columns;
  figure.width = layout.columns == 1 ? style::kColumn : style::kPage;
  const double cell = figure.width / layout.columns;
  const double inches = cell - kLeft - kRight;
  const double above = phase_names_height(results_, inches);
  const Legend legend(layout.legend, figure.width);
  figure.height = above + rows * layout.panel_height + (rows - 1) * kGap +
                  run_labels_height(results_) + legend.height_inches();
  figure.script = fmt::format(
      "set multiplot\nunset key\nset tics font ',{}'\nset ytics offset 0.5, 0\n", style::kSmall);
  for (int i = 0; i < count; ++i) {
    const auto& panel = panels[static_cast<std::size_t>(i)];
    const int row = i / layout.columns;
    const double left = (i % layout.columns) * cell;
    const double top = figure.height - above - row * (layout.panel_height + kGap);
    const double bottom = top - layout.panel_height;
    figure.script += fmt::format(
        "\nset lmargin at screen {:.4f}\nset rmargin at screen {:.4f}\n"
        "set bmargin at screen {:.4f}\nset tmargin at screen {:.4f}\nunset label\nunset arrow\n",
        (left + kLeft) / figure.width, (left + cell - kRight) / figure.width,
        bottom / figure.height, top / figure.height);
    figure.script += run_axis_commands(results_, inches, i + layout.columns >= count, row == 0);
    // Place the label explicitly: long tick labels would push gnuplot's ylabel off the page.
    figure.script += fmt::format(
        "set label '{}' at screen {:.4f}, screen {:.4f} center rotate font ',{}'\n", panel.y_label,
        (left + 0.1) / figure.width, 0.5 * (top + bottom) / figure.height, style::kLabel);
    if (i == 0) figure.script += legend.label_commands();
    figure.script += panel.empty ? "set yrange [0:1]\nplot NaN\n" : panel.settings + panel.plot;
  }
  figure.script += "\nunset multiplot\n";
  figure.data = table();
  return figure;
}

Table TrajectoryTable::table() const {
  const auto has_value = [](const Table::Column& column) {
    return !column.name.ends_with("_heads") &&
           !std::ranges::all_of(column.reals, [](double value) { return std::isnan(value); });
  };
  if (std::ranges::none_of(columns_, has_value)) return {};
  Table::Column run{"run", Table::Type::integer, {}, {}, {}};
  Table::Column model{"model", Table::Type::text, {}, {}, {}};
  Table::Column phase{"phase", Table::Type::text, {}, {}, {}};
  for (std::size_t i = 0; i < results_.runs().size(); ++i) {
    run.integers.push_back(as_integer_cell(i));
    model.texts.push_back(results_.run_label(i));
    phase.texts.push_back(replace_control_characters(results_.runs()[i].phase));
  }
  std::vector<Table::Column> columns = {std::move(run)};
  columns.insert(columns.end(), columns_.begin(), columns_.end());
  columns.insert(columns.end(), {std::move(model), std::move(phase)});
  return Table(std::move(columns));
}

}  // namespace qkscope
