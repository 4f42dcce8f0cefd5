#include "analysis/figures/run_series.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "analysis/figures/script.h"
#include "analysis/figures/style.h"
#include "base/core/error.h"
#include "base/core/numbers.h"

namespace qkscope {
namespace {

std::string scaled(const std::string& expression, double scale) {
  return scale == 1 ? expression : fmt::format("({}) * {}", expression, scale);
}

// A line from low to high; gnuplot's error bars would leave a gap around the point.
std::string whisker(const std::string& x, const Series& s, double scale) {
  return fmt::format("data using ({}):({}):(0):({}) with vectors nohead lw 1.2 lc rgb '{}'", x,
                     scaled(s.low, scale), scaled(fmt::format("({}) - ({})", s.high, s.low), scale),
                     s.colour);
}

// The interval of the mean, with caps to distinguish it from the spread over heads.
std::string bar(const std::string& x, const Series& s, double scale) {
  return fmt::format(
      "data using ({}):({}):(0):({}) with vectors heads nofilled size screen 0.007,90 lw 0.8 lc "
      "rgb '{}'",
      x, scaled(s.bar_low, scale), scaled(fmt::format("({}) - ({})", s.bar_high, s.bar_low), scale),
      style::kInk);
}

template <typename Summary>
std::vector<double> each(const std::vector<std::vector<double>>& groups, const Summary& summary) {
  std::vector<double> values;
  values.reserve(groups.size());
  for (const auto& group : groups) values.push_back(summary(group));
  return values;
}

double size_of(const std::vector<double>& group) {
  return static_cast<double>(group.size());
}

Series with_bars(Series series, MeasureColumns columns) {
  if (columns.interval == 0) return series;
  series.bar_low = fmt::format("${}", columns.interval);
  series.bar_high = fmt::format("${}", columns.interval + 1);
  return series;
}

}  // namespace

std::string plot_series(const std::vector<Series>& series, std::size_t runs, double scale) {
  std::string text = "plot \\\n";
  for (const auto& s : series)
    if (runs > 1)
      text += fmt::format(
          "  data using 1:({}):({}) with filledcurves fill transparent solid 0.16 noborder lc rgb "
          "'{}', \\\n",
          scaled(s.low, scale), scaled(s.high, scale), s.colour);
    else
      text += fmt::format("  {}, \\\n", whisker("$1", s, scale));
  for (const auto& s : series)
    if (!s.bar_low.empty()) text += fmt::format("  {}, \\\n", bar("$1", s, scale));
  for (std::size_t i = 0; i < series.size(); ++i) {
    const auto& s = series[i];
    text += fmt::format(
        "  data using 1:({}) with linespoints lw 1.4 pt {} ps 0.5*mark lc rgb '{}'{}\n",
        scaled(s.middle, scale), s.point_type, s.colour, i + 1 < series.size() ? ", \\" : "");
  }
  return text;
}

std::string plot_whiskers(const std::vector<Series>& series, double scale) {
  std::string text = "plot \\\n";
  const double step = series.size() > 1 ? 0.22 : 0;
  for (std::size_t i = 0; i < series.size(); ++i) {
    const auto& s = series[i];
    const auto x = fmt::format(
        "$1 + {}", step * (static_cast<double>(i) - 0.5 * static_cast<double>(series.size() - 1)));
    text += fmt::format("  {}, \\\n", whisker(x, s, scale));
    if (!s.bar_low.empty()) text += fmt::format("  {}, \\\n", bar(x, s, scale));
    text += fmt::format("  data using ({}):({}) with points pt {} ps 0.6*mark lc rgb '{}'{}\n", x,
                        scaled(s.middle, scale), s.point_type, s.colour,
                        i + 1 < series.size() ? ", \\" : "");
  }
  return text;
}

std::string null_line(int place, const std::string& colour) {
  return fmt::format("  data using 1:{} with lines lw 0.9 dt 3 lc rgb '{}', \\\n", place, colour);
}

std::string with_lines(const std::string& plot, const std::string& lines) {
  constexpr std::string_view kStart = "plot \\\n";
  QKSCOPE_ASSERT(plot.starts_with(kStart));
  return std::string(kStart) + lines + plot.substr(kStart.size());
}

std::vector<double> means_of(const std::vector<std::vector<double>>& groups) {
  return each(groups, mean_of);
}

std::vector<KeyEntry> key_of(const std::vector<Series>& series) {
  std::vector<KeyEntry> entries;
  entries.reserve(series.size());
  for (const auto& s : series) entries.push_back({s.title, s.colour, s.point_type});
  return entries;
}

int RunTable::add(const std::string& name, std::vector<double> values) {
  columns_.push_back({name, std::move(values)});
  return static_cast<int>(columns_.size()) + 1;  // column 1 is the index of the run
}

std::string RunTable::add_null(const Frame& frame, const std::string& column,
                               const std::string& colour) {
  const auto first = [&](std::size_t row) { return frame.is_first_component(row); };
  return null_line(add(column, means_of(by_run(results_, frame, frame.reals(column), first))),
                   colour);
}

int RunTable::add_intervals(const std::string& name, const ErrorName& error) {
  if (error.quantity.empty()) return 0;
  std::vector<double> low;
  std::vector<double> high;
  bool any = false;
  for (std::size_t i = 0; i < results_.runs().size(); ++i) {
    const auto interval = results_.interval(i, error.quantity, error.heads);
    any = any || interval;
    low.push_back(interval ? interval->low : kNan);
    high.push_back(interval ? interval->high : kNan);
  }
  if (!any) return 0;
  bars_ = true;
  const int place = add(name + "_low", std::move(low));
  add(name + "_high", std::move(high));
  return place;
}

std::string RunTable::bars_note() const {
  return bars_ ? " Bars with caps: 95 % interval over texts, jackknife." : "";
}

MeasureColumns RunTable::add_mean(const std::string& name,
                                  const std::vector<std::vector<double>>& groups,
                                  const ErrorName& error) {
  const int place = add(name + "_mean", each(groups, mean_of));
  add(name + "_std", each(groups, deviation_of));
  add(name + "_heads", each(groups, size_of));
  return {place, add_intervals(name, error)};
}

MeasureColumns RunTable::add_quartiles(const std::string& name,
                                       const std::vector<std::vector<double>>& groups,
                                       const ErrorName& error) {
  const auto quantile = [](double fraction) {
    return [fraction](const auto& group) { return quantile_of(group, fraction); };
  };
  const int place = add(name + "_median", each(groups, quantile(0.5)));
  add(name + "_q25", each(groups, quantile(0.25)));
  add(name + "_q75", each(groups, quantile(0.75)));
  add(name + "_mean", each(groups, mean_of));
  add(name + "_heads", each(groups, size_of));
  return {place, add_intervals(name, error)};
}

Series RunTable::mean_series(std::string title, std::string colour, int point_type,
                             MeasureColumns columns) {
  const int mean = columns.first;
  return with_bars(
      {std::move(title), std::move(colour), point_type, fmt::format("${}", mean),
       fmt::format("${} - ${}", mean, mean + 1), fmt::format("${} + ${}", mean, mean + 1)},
      columns);
}

Series RunTable::median_series(std::string title, std::string colour, int point_type,
                               MeasureColumns columns) {
  const int median = columns.first;
  return with_bars({std::move(title), std::move(colour), point_type, fmt::format("${}", median),
                    fmt::format("${}", median + 1), fmt::format("${}", median + 2)},
                   columns);
}

Series RunTable::quartile_series(std::string title, std::string colour, int point_type,
                                 MeasureColumns columns) {
  Series series = median_series(std::move(title), std::move(colour), point_type, columns);
  series.middle = fmt::format("${}", columns.first + 3);  // the mean
  return series;
}

Figure RunTable::draw(Figure figure, const std::vector<TrajectoryPanel>& panels,
                      const TrajectoryLayout& layout) const {
  draw_trajectories(results_, panels, layout, figure);
  figure.data = table();
  return figure;
}

Table RunTable::table() const {
  Table table;
  table.column("run", Table::Type::integer);
  bool any = false;
  for (const auto& column : columns_) {
    table.column(column.name, Table::Type::real);
    if (!column.name.ends_with("_heads"))
      any = any ||
            std::ranges::any_of(column.values, [](double value) { return !std::isnan(value); });
  }
  table.column("model", Table::Type::text).column("phase", Table::Type::text);
  if (!any) return table;
  for (std::size_t i = 0; i < results_.runs().size(); ++i) {
    std::vector<Table::Cell> cells = {static_cast<std::int64_t>(i)};
    for (const auto& column : columns_) cells.emplace_back(column.values[i]);
    cells.emplace_back(results_.label(static_cast<int>(i)));
    cells.emplace_back(one_line(results_.runs()[i].phase));
    table.add(std::move(cells));
  }
  return table;
}

}  // namespace qkscope
