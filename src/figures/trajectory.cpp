#include "figures/trajectory.h"

#include <fmt/format.h>

#include "figures/script.h"
#include "figures/style.h"

namespace qkscope {

void draw_trajectories(const Results& results, const std::vector<TrajectoryPanel>& panels,
                       int columns, Figure& figure) {
  // Inches.
  constexpr double kLeft = 0.52;  // of every panel, for its numbers and label
  constexpr double kRight = 0.1;
  constexpr double kPanel = 1.35;  // height
  constexpr double kGap = 0.14;
  constexpr double kTop = 0.32;
  const int count = static_cast<int>(panels.size());
  const int rows = (count + columns - 1) / columns;
  const double bottom = run_labels_height(results);
  figure.width = columns == 1 ? style::kColumn : style::kPage;
  figure.height = kTop + rows * kPanel + (rows - 1) * kGap + bottom;
  const double cell = figure.width / columns;
  figure.script = "set multiplot\n";
  for (int i = 0; i < count; ++i) {
    const auto& panel = panels[static_cast<std::size_t>(i)];
    const int row = i / columns;
    const double left = (i % columns) * cell;
    const double top = figure.height - kTop - row * (kPanel + kGap);
    figure.script += fmt::format(
        "\nset lmargin at screen {:.4f}\nset rmargin at screen {:.4f}\n"
        "set tmargin at screen {:.4f}\nset bmargin at screen {:.4f}\n",
        (left + kLeft) / figure.width, (left + cell - kRight) / figure.width, top / figure.height,
        (top - kPanel) / figure.height);
    figure.script += "unset label\nunset arrow\n";
    const bool lowest = i + columns >= count;
    figure.script += lowest ? run_axis(results, row == 0) : bare_run_axis(results, row == 0);
    figure.script += fmt::format("set ylabel '{}'\n", panel.y_label);
    figure.script += panel.settings + panel.plot;
  }
  figure.script += "\nunset multiplot\n";
}

}  // namespace qkscope
