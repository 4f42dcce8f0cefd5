#include "analysis/figures/run_axis.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "analysis/figures/script.h"
#include "analysis/figures/style.h"
#include "base/core/text.h"

namespace qkscope {
namespace {

constexpr std::size_t kLongestLabel = 22;

// A sequence of runs with the same phase: indices of the first and last run.
struct Phase {
  std::string name;
  std::size_t first;
  std::size_t last;
};

std::vector<Phase> phases_of(const Results& results) {
  std::vector<Phase> phases;
  const auto& runs = results.runs();
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (phases.empty() || phases.back().name != runs[i].phase)
      phases.push_back({runs[i].phase, i, i});
    phases.back().last = i;
  }
  return phases;
}

// Breaks the name at spaces into lines that are no wider than `inches` if possible.
std::vector<std::string> lines_of(const std::string& name, double inches) {
  std::vector<std::string> lines;
  for (const auto& word : split(one_line(name), ' ')) {
    if (!lines.empty() && text_width(lines.back() + " " + word, style::kPhase) + 0.05 <= inches)
      lines.back() += " " + word;
    else
      lines.push_back(word);
  }
  return lines;
}

double phase_width(const Results& results, const Phase& phase, double inches) {
  return inches * static_cast<double>(phase.last - phase.first + 1) /
         static_cast<double>(results.runs().size());
}

constexpr double kPhaseLine = 0.085;  // line height in inches

std::string phase_names(const Results& results, double inches) {
  std::string text;
  for (const auto& phase : phases_of(results)) {
    const auto lines = lines_of(phase.name, phase_width(results, phase, inches));
    const double x = 0.5 * static_cast<double>(phase.first + phase.last);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const double up = 0.06 + kPhaseLine * static_cast<double>(lines.size() - 1 - i);
      text += fmt::format(
          "set label {} at first {}, graph 1 offset character 0, screen {:.4f}/height center font "
          "',{}' textcolor rgb '{}'\n",
          quoted(lines[i]), x, up, style::kPhase, style::kInk);
    }
  }
  return text;
}

std::string phase_lines(const Results& results) {
  std::string text;
  const auto phases = phases_of(results);
  for (std::size_t i = 1; i < phases.size(); ++i)
    text += fmt::format(
        "set arrow from first {0}, graph 0 to first {0}, graph 1 nohead dashtype 2 lw 0.6 lc rgb "
        "'{1}' back\n",
        static_cast<double>(phases[i].first) - 0.5, style::kInk);
  return text;
}

// Margins and gaps in inches.
constexpr double kLeft = 0.54;  // margin of a panel for tick labels and the axis label
constexpr double kRight = 0.08;
constexpr double kGap = 0.14;

std::string margins(const Figure& figure, double left, double right, double bottom, double top) {
  return fmt::format(
      "\nset lmargin at screen {:.4f}\nset rmargin at screen {:.4f}\n"
      "set bmargin at screen {:.4f}\nset tmargin at screen {:.4f}\n",
      left / figure.width, right / figure.width, bottom / figure.height, top / figure.height);
}

// A label at a fixed place: gnuplot's ylabel moves with the width of the tick labels off the page.
std::string y_label(const Figure& figure, const std::string& text, double x, double y) {
  return fmt::format("set label '{}' at screen {:.4f}, screen {:.4f} center rotate font ',{}'\n",
                     text, x / figure.width, y / figure.height, style::kLabel);
}

}  // namespace

std::string run_axis(const Results& results, const RunAxis& axis) {
  const auto& runs = results.runs();
  std::string text = fmt::format("set xrange [-0.5:{}]\n", static_cast<double>(runs.size()) - 0.5);
  if (axis.labels) {
    std::string tics;
    for (std::size_t i = 0; i < runs.size(); ++i)
      tics += fmt::format("{}{} {}", i > 0 ? ", " : "",
                          quoted(shortened(runs[i].title, kLongestLabel)), i);
    text += fmt::format("set xtics format '%g' {} ({}) font ',{}'\n",
                        runs.size() > 3 ? "rotate by 40 right offset 0.4, 0.15" : "norotate center",
                        tics, style::kSmall);
  } else {
    text += "set xtics norotate 1 format ''\n";
  }
  text += phase_lines(results);
  if (axis.phases && phases_of(results).size() > 1) text += phase_names(results, axis.inches);
  return text;
}

double phases_height(const Results& results, double inches) {
  const auto phases = phases_of(results);
  if (phases.size() < 2) return 0.08;
  std::size_t most = 1;
  for (const auto& phase : phases)
    most = std::max(most, lines_of(phase.name, phase_width(results, phase, inches)).size());
  return 0.1 + kPhaseLine * static_cast<double>(most);
}

std::string run_rows(const Results& results) {
  std::string tics;
  const auto& runs = results.runs();
  for (std::size_t i = 0; i < runs.size(); ++i)
    tics += fmt::format("{}{} {}", i > 0 ? ", " : "",
                        quoted(shortened(runs[i].title, kLongestLabel)), -static_cast<int>(i));
  return fmt::format("set yrange [{}:0.5]\nset ytics ({}) scale 0 font ',{}'\n",
                     0.5 - static_cast<double>(runs.size()), tics, style::kSmall);
}

double run_labels_height(const Results& results) {
  if (results.runs().size() <= 3) return 0.3;
  double longest = 0;
  for (const auto& run : results.runs())
    longest = std::max(longest, text_width(shortened(run.title, kLongestLabel), style::kSmall));
  return 0.18 + 0.64 * longest;
}

void draw_trajectories(const Results& results, const std::vector<TrajectoryPanel>& panels,
                       const TrajectoryLayout& layout, Figure& figure) {
  const int count = static_cast<int>(panels.size());
  const int rows = (count + layout.columns - 1) / layout.columns;
  figure.width = layout.columns == 1 ? style::kColumn : style::kPage;
  const double cell = figure.width / layout.columns;
  const double inches = cell - kLeft - kRight;
  const double above = phases_height(results, inches);
  const Key key(layout.key, figure.width);
  figure.height = above + rows * layout.panel_height + (rows - 1) * kGap +
                  run_labels_height(results) + key.height();
  figure.script = fmt::format(
      "set multiplot\nunset key\nset tics font ',{}'\nset ytics offset 0.5, 0\n", style::kSmall);
  for (int i = 0; i < count; ++i) {
    const auto& panel = panels[static_cast<std::size_t>(i)];
    const int row = i / layout.columns;
    const double left = (i % layout.columns) * cell;
    const double top = figure.height - above - row * (layout.panel_height + kGap);
    const double bottom = top - layout.panel_height;
    figure.script += margins(figure, left + kLeft, left + cell - kRight, bottom, top);
    figure.script += "unset label\nunset arrow\n";
    figure.script += run_axis(
        results, {.inches = inches, .labels = i + layout.columns >= count, .phases = row == 0});
    figure.script += y_label(figure, panel.y_label, left + 0.1, 0.5 * (top + bottom));
    if (i == 0) figure.script += key.labels();
    figure.script += panel.empty ? "set yrange [0:1]\nplot NaN\n" : panel.settings + panel.plot;
  }
  figure.script += "\nunset multiplot\n";
}

Unit unit_for(const std::vector<std::vector<double>>& groups, const std::string& unit) {
  double largest = 0;
  for (const auto& group : groups)
    for (const double fraction : {0.25, 0.75})
      if (!group.empty()) largest = std::max(largest, std::fabs(quantile_of(group, fraction)));
  if (!(largest > 0) || (largest >= 0.05 && largest < 1000)) return {1, unit};
  const int power = static_cast<int>(std::floor(std::log10(largest)));
  return {std::pow(10, -power), fmt::format("10^{{{}}} {}", power, unit)};
}

}  // namespace qkscope
