#include "figures/trajectory.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "figures/run_axis.h"
#include "figures/statistics.h"
#include "figures/style.h"

namespace qkscope {
namespace {

// Inches.
constexpr double kLeft = 0.54;  // of every panel, for its numbers and label
constexpr double kRight = 0.08;
constexpr double kGap = 0.14;

std::string margins(const Figure& figure, double left, double right, double bottom, double top) {
  return fmt::format(
      "\nset lmargin at screen {:.4f}\nset rmargin at screen {:.4f}\n"
      "set bmargin at screen {:.4f}\nset tmargin at screen {:.4f}\n",
      left / figure.width, right / figure.width, bottom / figure.height, top / figure.height);
}

// Not gnuplot's own: that moves with the width of the numbers and leaves the page.
std::string y_label(const Figure& figure, const std::string& text, double x, double y) {
  return fmt::format("set label '{}' at screen {:.4f}, screen {:.4f} center rotate font ',{}'\n",
                     text, x / figure.width, y / figure.height, style::kLabel);
}

}  // namespace

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
