// Figures of the first principal component and of the classes: over runs, or of one run.
#include <algorithm>

#include <fmt/format.h>

#include "analysis/figures/registry.h"
#include "analysis/figures/run_axis.h"
#include "analysis/figures/run_series.h"
#include "analysis/figures/script.h"
#include "analysis/figures/style.h"

namespace qkscope {
namespace {

// Selects the rows of principal component `pc`.
std::function<bool(std::size_t)> component(const Frame& qk, std::int64_t pc) {
  return [&pcs = qk.integers("pc"), pc](std::size_t row) { return pcs[row] == pc; };
}

constexpr const char* kRq = "{/:Italic r}_q";
constexpr const char* kRk = "{/:Italic r}_k";

// Draws the explained variance of PC0 to PC9 of a single run as bars, with the standard deviation
// over heads.
Figure explained_variance_of_one(const Results& results) {
  const Frame& qk = results.frame("qk");
  Figure figure;
  figure.data = empty_table("integer pc, real mean, real std, integer heads");
  for (int pc = 0; pc < 10; ++pc) {
    const auto values =
        by_run(results, qk, qk.reals("explained_variance"), component(qk, pc)).front();
    if (values.empty()) continue;
    figure.data.add({std::int64_t{pc}, mean_of(values), deviation_of(values), std::ssize(values)});
  }
  figure.title = "Explained variance";
  figure.width = style::kColumn;
  figure.height = style::kHeight;
  figure.script = fmt::format(
      "set xlabel 'principal component'\n"
      "set ylabel 'share of variance'\n"
      "set yrange [0:*]\nset xrange [-0.6:9.6]\nset xtics 1\nset boxwidth 0.7\n"
      "plot data using 1:2 with boxes lc rgb '{}', \\\n"
      "  data using 1:($2 - $3):(0):(2 * $3) with vectors nohead lw 1 lc rgb '{}'\n",
      style::kQuery, style::kInk);
  figure.caption =
      "Share of the variance of a head's pooled queries and keys that each of the first ten "
      "principal components holds: mean over heads, whiskers of one standard deviation.";
  return figure;
}

std::string class_caption(const Results& results) {
  return fmt::format(
      "Classes come from the first component's r_q and |r_k|; the bounds of low and high are {}. "
      "Position-dominated is high in both, Q-positional high in r_q and low in |r_k|, K-positional "
      "the reverse, content-focused low in both, mixed the rest. Heads without a class are not "
      "counted.",
      bounds_text(results));
}

// Heads of each class. The table is empty if no head has a class.
Table class_table(const Frame& heads) {
  const auto& classes = heads.texts("class");
  Table table =
      empty_table("integer row, integer heads, integer nope_heads, real fraction, text class");
  const auto total = std::ranges::count_if(classes, [](const auto& name) { return !name.empty(); });
  if (total == 0) return table;
  for (const auto& c : style::kClasses) {
    std::int64_t here = 0;
    std::int64_t without = 0;
    for (std::size_t i = 0; i < classes.size(); ++i) {
      if (classes[i] != c.name) continue;
      ++here;
      without += heads.is_nope(i) ? 1 : 0;
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

Figure position_signal(const Results& results) {
  const Frame& qk = results.frame("qk");
  RunTable table(results);
  const auto r_q = table.add_mean("r_q", by_run(results, qk, qk.reals("r_q"), component(qk, 0)),
                                  {.quantity = "r_q"});
  const auto r_k = table.add_mean("r_k", by_run(results, qk, qk.reals("r_k"), component(qk, 0)),
                                  {.quantity = "r_k"});
  const bool null = qk.has("r_q_null") && qk.has("r_k_null");
  std::string lines;
  if (null)
    for (const auto& [name, colour] :
         {std::pair{"r_q_null", style::kQuery}, std::pair{"r_k_null", style::kKey}})
      lines += table.add_null(qk, name, colour);
  Figure figure;
  figure.title = "Position signal on the first component";
  figure.caption =
      "Correlation with position of queries (r_q, blue circles) and keys (r_k, red squares) "
      "projected on the first combined principal component: mean over heads, band of one standard "
      "deviation (ddof 1). Dashed lines separate phases. r_k keeps its sign; components point "
      "where r_q is positive.";
  figure.caption += table.bars_note();
  if (null) figure.caption += " " + std::string(kNullNote);
  const std::vector<Series> series = {
      RunTable::mean_series(fmt::format("queries, {}", kRq), style::kQuery, style::kCircle, r_q),
      RunTable::mean_series(fmt::format("keys, {}", kRk), style::kKey, style::kSquare, r_k)};
  return table.draw(std::move(figure),
                    {{"correlation with position", "set yrange [*<0:1.02]\nset ytics 0.2\n",
                      with_lines(plot_series(series, results.runs().size()), lines)}},
                    {.panel_height = 1.7, .key = key_of(series)});
}

Figure taxonomy_evolution(const Results& results) {
  const Frame& heads = results.frame("taxonomy");
  const auto& classes = heads.texts("class");
  const std::vector<double> ones(heads.rows(), 1.0);
  const auto total =
      by_run(results, heads, ones, [&](std::size_t row) { return !classes[row].empty(); });
  RunTable table(results);
  std::string plots = "plot \\\n";
  std::vector<KeyEntry> key;
  for (const auto& c : style::kClasses) {
    const auto members =
        by_run(results, heads, ones, [&](std::size_t row) { return classes[row] == c.name; });
    std::vector<double> fractions;
    for (std::size_t i = 0; i < members.size(); ++i)
      fractions.push_back(static_cast<double>(members[i].size()) /
                          static_cast<double>(total[i].size()));
    const int place = table.add(c.name, std::move(fractions));
    key.push_back({c.title, c.colour, style::kSquare});
    plots += fmt::format("  data using {} lc rgb '{}'{}\n", place, c.colour,
                         &c == std::end(style::kClasses) - 1 ? "" : ", \\");
  }
  std::vector<double> counts;
  counts.reserve(total.size());
  for (const auto& group : total) counts.push_back(static_cast<double>(group.size()));
  table.add("all_heads", std::move(counts));
  Figure figure;
  figure.title = "Classes of heads";
  figure.caption = fmt::format("Fraction of heads in each class. {} Dashed lines separate phases.",
                               class_caption(results));
  return table.draw(std::move(figure), {{"fraction of heads", kStackedBars, plots}},
                    {.panel_height = 1.7, .key = key});
}

Figure class_counts(const Results& results) {
  const Frame& heads = results.frame("taxonomy");
  const bool nope = heads.any_nope();
  Figure figure;
  figure.data = class_table(heads);
  if (figure.data.rows() == 0) return {};
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
  figure.caption =
      fmt::format("Heads in each class of '{}'. {}{}", results.title(), class_caption(results),
                  nope ? " Hatched: heads of NoPE layers." : "");
  return figure;
}

Figure explained_variance(const Results& results) {
  if (results.single()) return explained_variance_of_one(results);
  const Frame& qk = results.frame("qk");
  RunTable table(results);
  const auto share =
      table.add_mean("pc0", by_run(results, qk, qk.reals("explained_variance"), component(qk, 0)),
                     {.quantity = "pc0_variance"});
  Figure figure;
  figure.title = "Explained variance";
  figure.caption =
      "Share of the variance of a head's pooled queries and keys on the first principal "
      "component: mean over heads, band of one standard deviation. Dashed lines separate phases." +
      table.bars_note();
  const auto plot = plot_series({RunTable::mean_series("", style::kAccent, style::kCircle, share)},
                                results.runs().size());
  return table.draw(std::move(figure), {{"share of variance on PC0", "set yrange [0:*]\n", plot}},
                    {.panel_height = 1.7});
}

Figure nope_vs_rope(const Results& results) {
  const Frame& qk = results.frame("qk");
  const Frame& metrics = results.frame("head_metrics");
  RunTable table(results);
  std::vector<Series> signal;
  std::vector<Series> plasticity;
  bool both = true;
  for (const bool nope : {false, true}) {
    const std::string rope = nope ? "nope" : "rope";
    const std::string title = nope ? "NoPE" : "RoPE";
    const auto of_layers = [&rope](const Frame& frame) {
      return [&texts = frame.texts("rope"), rope](std::size_t row) { return texts[row] == rope; };
    };
    const auto first = component(qk, 0);
    const auto here = of_layers(qk);
    const auto take = [&](std::size_t row) { return first(row) && here(row); };
    const auto r_q = by_run(results, qk, qk.reals("r_q"), take);
    for (const auto& group : r_q) both = both && !group.empty();
    const auto q = table.add_mean(rope + "_r_q", r_q, {"r_q", rope});
    const auto k =
        table.add_mean(rope + "_r_k", by_run(results, qk, qk.reals("r_k"), take), {"r_k", rope});
    const auto ap = table.add_mean(
        rope + "_ap",
        by_run(results, metrics, metrics.reals("ap_profile_overall"), of_layers(metrics)),
        {"ap_profile_overall", rope});
    const char* colour = nope ? style::kNope : style::kRope;
    signal.push_back(
        RunTable::mean_series(fmt::format("{}, {}", title, kRq), colour, style::kCircle, q));
    signal.push_back(
        RunTable::mean_series(fmt::format("{}, {}", title, kRk), colour, style::kSquare, k));
    plasticity.push_back(RunTable::mean_series(title, colour, style::kCircle, ap));
  }
  if (!both) return nothing_to_draw("a run has only layers of one kind (RoPE or NoPE)");
  Figure figure;
  figure.title = "Layers with and without RoPE";
  figure.caption =
      "Above: mean r_q (circles) and r_k (squares) on the first component, over heads of RoPE "
      "layers (blue) and NoPE layers (orange). Below: mean attention plasticity (the mean of each "
      "head's profile, ap_profile_overall). Bands: one standard deviation over heads. Dashed lines "
      "separate phases." +
      table.bars_note();
  return table.draw(std::move(figure),
                    {{"correlation with position", "set yrange [*<0:1.02]\nset ytics 0.25\n",
                      plot_series(signal, results.runs().size())},
                     {"attention plasticity", "set yrange [0:1.02]\n",
                      plot_series(plasticity, results.runs().size())}},
                    {.key = key_of(signal)});
}

}  // namespace qkscope
