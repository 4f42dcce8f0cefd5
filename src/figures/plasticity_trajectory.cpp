// Plasticity at both ends of the context, over the runs.
#include <fmt/format.h>

#include "figures/figure.h"
#include "figures/run_table.h"
#include "figures/style.h"
#include "figures/trajectory.h"

namespace qkscope {

Figure plasticity_trajectory(const Results& results) {
  const Frame& metrics = results.frame("head_metrics");
  const Frame& rotated = results.frame("rotated");
  RunTable table(results);
  const int first =
      table.add_mean("ap_first20", by_run(results, metrics, metrics.reals("ap_first20")));
  const int last =
      table.add_mean("ap_last20", by_run(results, metrics, metrics.reals("ap_last20")));
  const auto biases = by_run(results, rotated, rotated.reals("bias_strength"));
  const int bias = table.add_mean("bias_strength", biases);
  const Unit unit = unit_for(biases, "per token");
  const auto line = [](const std::string& y, int point, const char* colour) {
    return fmt::format("  data using 1:({}) with linespoints lw 1.4 pt {} ps 0.5*mark lc rgb '{}'",
                       y, point, colour);
  };
  Figure figure;
  figure.title = "Plasticity at the beginning and the end of the context";
  figure.caption =
      "Above: attention plasticity averaged over query positions in the first (ap_first20) and the "
      "last fifth (ap_last20) of the context, means over heads; the gap between them is shaded. "
      "Below: mean bias strength (mu_q_a alpha_k, per token). Dashed lines separate phases.";
  const auto shaded = fmt::format(
      "plot data using 1:{}:{} with filledcurves fill solid noborder lc rgb '{}', \\\n{}, \\\n{}\n",
      first, last, style::kHair, line(fmt::format("${}", first), style::kCircle, style::kQuery),
      line(fmt::format("${}", last), style::kSquare, style::kNope));
  const auto below =
      line(fmt::format("${} * {}", bias, unit.scale), style::kCircle, style::kAccent);
  draw_trajectories(
      results,
      {{"attention plasticity", "set yrange [0:1]\nset ytics 0.2\n", shaded},
       {fmt::format("bias ({})", unit.text), "set yrange [*<0:*]\nset ytics autofreq\n",
        "plot \\\n" + below + "\n", all_empty(biases)}},
      {.key = {{"first 20 % of the context", style::kQuery, style::kCircle},
               {"last 20 %", style::kNope, style::kSquare}}},
      figure);
  figure.data = table.table();
  return figure;
}

}  // namespace qkscope
