// How many heads of one model each class has.
#include <fmt/format.h>

#include "analysis/figures/registry.h"
#include "analysis/figures/script.h"
#include "analysis/figures/style.h"

namespace qkscope {
namespace {

// row, heads, nope_heads, fraction, class; empty when no head has a class.
Table class_table(const Frame& heads) {
  const auto& classes = heads.texts("class");
  const auto& rope = heads.texts("rope");
  Table table;
  table.column("row", Table::Type::integer)
      .column("heads", Table::Type::integer)
      .column("nope_heads", Table::Type::integer)
      .column("fraction", Table::Type::real)
      .column("class", Table::Type::text);
  std::int64_t total = 0;
  for (const auto& name : classes) total += name.empty() ? 0 : 1;
  if (total == 0) return table;
  for (const auto& c : style::kClasses) {
    std::int64_t here = 0;
    std::int64_t without = 0;
    for (std::size_t i = 0; i < classes.size(); ++i) {
      if (classes[i] != c.name) continue;
      ++here;
      without += rope[i] == "nope" ? 1 : 0;
    }
    table.add({table.rows(), here, without, static_cast<double>(here) / static_cast<double>(total),
               std::string(c.name)});
  }
  return table;
}

std::string plot_class_bars(bool nope) {
  std::string text = "plot ";
  for (std::size_t row = 0; row < std::size(style::kClasses); ++row)
    text += fmt::format(
        "data using ($1 == {0} ? 0.5 * $2 : NaN):(-$1):(0):2:(-$1 - 0.36):(-$1 + 0.36) with "
        "boxxyerror fillstyle solid noborder lc rgb '{1}', \\\n  ",
        row, style::kClasses[row].colour);
  if (nope)
    text += fmt::format(
        "data using (0.5 * $3):(-$1):(0):3:(-$1 - 0.36):(-$1 + 0.36) with boxxyerror fillstyle "
        "transparent pattern 4 noborder lc rgb '{}', \\\n  ",
        style::kInk);
  return text +
         fmt::format(
             "data using 2:(-$1):(sprintf('  %d (%.1f %%)', $2, 100 * $4)) with labels left font "
             "',{}'\n",
             style::kSmall);
}

}  // namespace

Figure class_counts(const Results& results) {
  const Frame& heads = results.frame("taxonomy");
  const bool nope = any_nope(heads);
  Figure figure;
  figure.data = class_table(heads);
  if (figure.data.rows() == 0) return nothing_to_draw("none of its numbers exists");
  std::int64_t total = 0;
  for (const auto count : figure.data.find("heads")->integers) total += count;
  std::string tics;
  int row = 0;
  for (const auto& c : style::kClasses) {
    tics += fmt::format("{}'{}' {}", row > 0 ? ", " : "", c.title, -row);
    ++row;
  }
  figure.title = "Classes of heads";
  figure.width = style::kColumn;
  figure.height = 1.5;
  figure.script =
      margins({1.15, style::kColumn - 0.1, 0.36, 1.44}) +
      fmt::format(
          "unset grid\nset border 1\nset ytics ({0}) scale 0 font ',{1}'\nset xtics font ',{1}'\n"
          "set yrange [{2}:0.5]\nset xrange [0:{3}]\nset xlabel 'heads' offset 0, 0.5 font "
          "',{4}'\n",
          tics, style::kSmall, 0.5 - row, 1.4 * static_cast<double>(total), style::kLabel) +
      plot_class_bars(nope);
  figure.caption = fmt::format(
      "Heads in each class of '{}'. Classes come from the first component's r_q and |r_k|; the "
      "bounds of low and high are {}. Position-dominated is high in both, Q-positional high in r_q "
      "and low in |r_k|, K-positional the reverse, content-focused low in both, mixed the rest. "
      "Heads without a class are not counted.{}",
      one_line(results.runs().front().title), bounds_text(results),
      nope ? " Hatched: heads of NoPE layers." : "");
  return figure;
}

}  // namespace qkscope
