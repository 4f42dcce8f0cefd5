// One point per head, or one per component: panels of runs.
#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "analysis/figures/panels.h"
#include "analysis/figures/registry.h"
#include "analysis/figures/script.h"
#include "analysis/figures/style.h"

namespace qkscope {
namespace {

// Heads of one run, x against an expression of y ("$3"), those of NoPE layers as diamonds:
// head_points' columns.
std::string plot_heads(std::size_t run, const char* y) {
  const auto heads = [&](int nope, const std::string& look) {
    return fmt::format("  data using ($1 == {} && $4 == {} ? $2 : NaN):({}) with points {}", run,
                       nope, y, look);
  };
  return "plot \\\n" +
         heads(0,
               fmt::format("pt {} ps 0.22*mark lc rgb '#70{}'", style::kCircle, style::kRope + 1)) +
         ", \\\n" +
         heads(1,
               fmt::format("pt {} ps 0.3*mark lc rgb '#40{}'", style::kDiamond, style::kNope + 1)) +
         "\n";
}

// Without NoPE layers there is nothing to tell apart, and no key.
struct LayerMarks {
  double top;  // inches above the panels
  std::vector<KeyEntry> key;
  const char* words;  // for the caption
};

LayerMarks layer_marks(const Frame& frame) {
  if (!any_nope(frame)) return {0.22, {}, ""};
  return {0.36, layer_key(), " Diamonds are heads of NoPE layers."};
}

// Dashed lines at the bounds of the classes; both signs of r_k.
std::string bound_lines(const Run& run) {
  std::string text = "unset arrow\n";
  const auto line = [&](const std::string& from, const std::string& to) {
    text += fmt::format("set arrow from {} to {} nohead dt 2 lw 0.5 lc rgb '{}' back\n", from, to,
                        style::kFaint);
  };
  for (const double at : {run.low, run.high}) {
    line(fmt::format("{}, graph 0", at), fmt::format("{}, graph 1", at));
    for (const double y : {at, -at})
      line(fmt::format("graph 0, first {}", y), fmt::format("graph 1, first {}", y));
  }
  return text;
}

// A common logarithmic range for |values|; what is below a hundred-thousandth of the largest is
// cut.
std::string decades(const std::vector<double>& values) {
  double largest = 0;
  for (const double value : values)
    if (std::fabs(value) > largest) largest = std::fabs(value);
  double smallest = largest;
  for (const double value : values)
    if (std::fabs(value) > 1e-5 * largest) smallest = std::min(smallest, std::fabs(value));
  if (!(smallest > 0)) return "set yrange [1e-6:1]\n";
  return fmt::format("set yrange [1e{}:1e{}]\n", std::floor(std::log10(smallest)),
                     std::ceil(std::log10(largest)));
}

struct PointColumns {
  const char* table;
  const char* x;
  const char* y;
};

// run, x, y, nope, layer, head, model: one row per head of `frame` that `take` accepts.
Table head_points(const Results& results, const PointColumns& columns,
                  const std::function<bool(std::size_t)>& take) {
  const Frame& frame = results.frame(columns.table);
  const auto& x = frame.reals(columns.x);
  const auto& y = frame.reals(columns.y);
  Table table;
  table.column("run", Table::Type::integer)
      .column(columns.x, Table::Type::real)
      .column(columns.y, Table::Type::real)
      .column("nope", Table::Type::integer)
      .column("layer", Table::Type::integer)
      .column("head", Table::Type::integer)
      .column("model", Table::Type::text);
  for (std::size_t row = 0; row < frame.rows(); ++row) {
    if (!take(row) || std::isnan(x[row]) || std::isnan(y[row])) continue;
    const auto run = frame.run()[row];
    table.add({std::int64_t{run}, x[row], y[row],
               std::int64_t{frame.texts("rope")[row] == "nope" ? 1 : 0},
               frame.integers("layer")[row], frame.integers("head")[row],
               one_line(results.runs()[static_cast<std::size_t>(run)].label)});
  }
  return table;
}

// A mean in one column and its standard deviation in the next, beside x = component.
struct Spread {
  int middle;
  double shift;
};

std::string plot_spread(std::size_t run, const Spread& spread, int point, const char* colour) {
  const auto x = fmt::format("($1 == {} ? $2 + {} : NaN)", run, spread.shift);
  return fmt::format(
      "  data using {0}:(${1} - ${2}):(0):(2 * ${2}) with vectors nohead lw 0.7 lc rgb '{4}', \\\n"
      "  data using {0}:{1} with points pt {3} ps 0.35*mark lc rgb '{4}'",
      x, spread.middle, spread.middle + 1, point, colour);
}

}  // namespace

Figure rq_rk_scatter(const Results& results) {
  const auto& pcs = results.frame("qk").integers("pc");
  Figure figure;
  figure.title = "Position in queries against position in keys";
  const auto marks = layer_marks(results.frame("qk"));
  figure.caption = fmt::format(
      "One point per head: r_q against r_k (with its sign) on the first component. Dashed lines "
      "bound the classes, which look at |r_k|: {}.{}",
      bounds_text(results), marks.words);
  figure.data =
      head_points(results, {"qk", "r_q", "r_k"}, [&](std::size_t row) { return pcs[row] == 0; });
  const Panels panels({.count = static_cast<int>(results.runs().size()),
                       .aspect = 1.25,
                       .top = marks.top,
                       .x_label = "{/:Italic r}_q",
                       .y_label = "{/:Italic r}_k"});
  figure.width = panels.width();
  figure.height = panels.height();
  figure.script = panels.begin() + panels.key(marks.key) +
                  "set xrange [-0.08:1.05]\nset yrange [-1.05:1.05]\n"
                  "set xtics 0.5\nset ytics 0.5\nunset grid\n";
  for (std::size_t i = 0; i < results.runs().size(); ++i) {
    figure.script += panels.panel(static_cast<int>(i), results.runs()[i].title);
    figure.script += bound_lines(results.runs()[i]) + plot_heads(i, "$3");
  }
  figure.script += panels.end();
  return figure;
}

Figure bias_vs_separation(const Results& results) {
  Figure figure;
  figure.title = "Positional bias against separation";
  const auto marks = layer_marks(results.frame("rotated"));
  figure.caption = fmt::format(
      "One point per head: separation_strength (share of the squared distance between queries and "
      "keys along b) against |bias_strength| (|mu_q_a alpha_k|, per token), on a logarithmic "
      "axis.{}",
      marks.words);
  figure.data = head_points(results, {"rotated", "separation_strength", "bias_strength"},
                            [](std::size_t) { return true; });
  const Panels panels({.count = static_cast<int>(results.runs().size()),
                       .top = marks.top,
                       .y_format = "10^{%T}",
                       .x_label = "separation strength",
                       .y_label = "|bias strength| (per token)"});
  figure.width = panels.width();
  figure.height = panels.height();
  figure.script =
      panels.begin() + panels.key(marks.key) +
      "set xrange [-0.05:1.05]\nset xtics 0.5\nset logscale y\nset ytics 100\nunset grid\n" +
      decades(results.frame("rotated").reals("bias_strength"));
  for (std::size_t i = 0; i < results.runs().size(); ++i)
    figure.script +=
        panels.panel(static_cast<int>(i), results.runs()[i].title) + plot_heads(i, "abs($3)");
  figure.script += panels.end();
  return figure;
}

Figure pc_roles(const Results& results) {
  const Frame& qk = results.frame("qk");
  const auto& pcs = qk.integers("pc");
  Figure figure;
  figure.title = "Position on the first ten components";
  figure.caption =
      "Mean over heads of r_q (blue circles) and r_k (red squares) on each principal component, "
      "whiskers of one standard deviation. A component points where its r_q is positive.";
  figure.data.column("run", Table::Type::integer)
      .column("pc", Table::Type::integer)
      .column("r_q_mean", Table::Type::real)
      .column("r_q_std", Table::Type::real)
      .column("r_k_mean", Table::Type::real)
      .column("r_k_std", Table::Type::real)
      .column("heads", Table::Type::integer)
      .column("model", Table::Type::text);
  for (std::int64_t pc = 0; pc < 10; ++pc) {
    const auto take = [&](std::size_t row) { return pcs[row] == pc; };
    const auto r_q = by_run(results, qk, qk.reals("r_q"), take);
    const auto r_k = by_run(results, qk, qk.reals("r_k"), take);
    for (std::size_t i = 0; i < r_q.size(); ++i)
      if (!r_q[i].empty() || !r_k[i].empty())
        figure.data.add({static_cast<std::int64_t>(i), pc, mean_of(r_q[i]), deviation_of(r_q[i]),
                         mean_of(r_k[i]), deviation_of(r_k[i]),
                         static_cast<std::int64_t>(r_q[i].size()),
                         one_line(results.runs()[i].label)});
  }
  const Panels panels({.count = static_cast<int>(results.runs().size()),
                       .top = 0.36,
                       .x_label = "principal component",
                       .y_label = "correlation with position"});
  figure.width = panels.width();
  figure.height = panels.height();
  figure.script = panels.begin() +
                  panels.key({{"queries, {/:Italic r}_q", style::kQuery, style::kCircle},
                              {"keys, {/:Italic r}_k", style::kKey, style::kSquare}}) +
                  "set xrange [-0.6:9.6]\nset yrange [-1:1]\nset xtics 3\nset ytics 0.5\n";
  for (std::size_t i = 0; i < results.runs().size(); ++i) {
    figure.script += panels.panel(static_cast<int>(i), results.runs()[i].title);
    figure.script += fmt::format("plot 0 lw 0.5 lc rgb '{}' notitle, \\\n", style::kFaint);
    figure.script +=
        plot_spread(i, {.middle = 3, .shift = -0.12}, style::kCircle, style::kQuery) + ", \\\n" +
        plot_spread(i, {.middle = 5, .shift = 0.12}, style::kSquare, style::kKey) + "\n";
  }
  figure.script += panels.end();
  return figure;
}

}  // namespace qkscope
