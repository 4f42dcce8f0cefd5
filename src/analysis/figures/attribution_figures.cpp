// Figures of score attribution: contributions to a score, the score by frequency and by distance,
// and the composition of heads, for one checkpoint and over a series.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include "analysis/figures/run_plots.h"
#include "analysis/figures/style.h"
#include "base/core/numbers.h"

namespace qkscope {
namespace {

constexpr std::size_t kMatrixComponents = 14;  // per side
constexpr std::size_t kShownScores = 4;

// Rows of one score of a table.
struct ScoreRows {
  std::string title;  // "18.6: ' b' (40) to ' a' (12)"
  std::vector<std::size_t> rows;
};

// Groups the rows of a table by score, in order of appearance. Only the first run is shown.
std::vector<ScoreRows> rows_by_score(const ResultFrame& frame) {
  std::map<std::vector<std::int64_t>, std::size_t> places;
  std::vector<ScoreRows> scores;
  for (std::size_t row = 0; row < frame.rows(); ++row) {
    if (frame.run_indices()[row] != 0) continue;
    const std::vector<std::int64_t> key = {
        frame.integer_column("layer")[row], frame.integer_column("head")[row],
        frame.integer_column("query")[row], frame.integer_column("key")[row]};
    const auto [place, anew] = places.try_emplace(key, scores.size());
    if (anew)
      scores.push_back({fmt::format("{}.{}: '{}' ({}) to '{}' ({})", key[0], key[1],
                                    frame.text_column("query_token")[row], key[2],
                                    frame.text_column("key_token")[row], key[3]),
                        {}});
    scores[place->second].rows.push_back(row);
  }
  return scores;
}

// Components of one side of a score, largest magnitude of the sum first.
struct SideSums {
  std::vector<std::string> labels;
  std::vector<double> values;
};

SideSums largest_components(const ResultFrame& frame, const std::vector<std::size_t>& rows,
                            const std::string& side, std::size_t most) {
  const auto& values = frame.real_column("value");
  std::vector<std::size_t> order;
  for (const auto row : rows)
    if (frame.text_column("side")[row] == side) order.push_back(row);
  std::ranges::stable_sort(order, std::greater(),
                           [&](std::size_t row) { return std::fabs(values[row]); });
  order.resize(std::min(order.size(), most));
  SideSums sums;
  for (const auto row : order) {
    sums.labels.push_back(frame.text_column("component")[row]);
    sums.values.push_back(values[row]);
  }
  return sums;
}

// Returns "'name' place, ..." for `set xtics (...)`, with places from 0 on.
std::string label_ticks(const std::vector<std::string>& labels) {
  std::string ticks;
  for (std::size_t i = 0; i < labels.size(); ++i)
    ticks += fmt::format("{}{} {}", i == 0 ? "" : ", ", gnuplot_literal(labels[i]), i);
  return ticks;
}

std::size_t place_of(const std::vector<std::string>& labels, const std::string& label) {
  return as_index(std::ranges::find(labels, label) - labels.begin());
}

// Curves of the column `value` over the column `x`, one per score.
Figure score_curves(const ResultFrame& frame, const char* x, const char* y_label,
                    const std::string& settings) {
  auto scores = rows_by_score(frame);
  scores.resize(std::min(scores.size(), kShownScores));
  if (scores.empty()) return {};
  Figure figure;
  figure.data = empty_table(fmt::format("real {}, real value, integer score, text title", x));
  std::vector<LegendEntry> entries;
  std::string plots;
  const auto xs = frame.numeric_column(x);
  for (std::size_t i = 0; i < scores.size(); ++i) {
    for (const auto row : scores[i].rows)
      if (!std::isnan(xs[row]))
        figure.data.add({xs[row], frame.real_column("value")[row], as_integer_cell(i),
                         replace_control_characters(scores[i].title)});
    entries.push_back({escape_markup(replace_control_characters(shorten_text(scores[i].title, 44))),
                       style::kFamilies[i], style::kCircle});
    plots += fmt::format(
        "{}data using 1:($3 == {} ? $2 : NaN) with linespoints pt 7 ps 0.25*mark lw 1.2 lc rgb "
        "'{}'",
        i == 0 ? "plot " : ", \\\n  ", i, style::kFamilies[i]);
  }
  const Legend legend(entries, style::kColumn);
  figure.height = style::kHeight + legend.height();
  figure.script =
      margin_commands(0.55, style::kColumn - 0.1, 0.45 + legend.height(), figure.height - 0.1) +
      legend.label_commands() + settings +
      fmt::format(
          "set logscale x\nset format x '10^{{%L}}'\n"
          "set label '{}' at screen 0.1/width, graph 0.5 center rotate\n",
          y_label) +
      plots + "\n";
  return figure;
}

// Sets size and script of a matrix of contributions, with sums beside and below it.
void draw_matrix(Figure& figure, std::vector<std::string> rows, std::vector<std::string> columns,
                 double largest, const std::string& title) {
  for (auto* labels : {&rows, &columns}) labels->insert(labels->end(), {"", "sum"});
  const double wide = 0.17 * static_cast<double>(columns.size());
  const double tall = 0.17 * static_cast<double>(rows.size());
  figure.width = 0.8 + wide + 0.65;
  figure.height = 0.7 + tall + 0.35;
  figure.script =
      margin_commands(0.8, 0.8 + wide, 0.7, figure.height - 0.35) +
      gnuplot_palette_command(style::kAroundZero) +
      fmt::format(
          "unset grid\nset border 0\nset tics scale 0 font ',{}'\n"
          "set xrange [-0.5:{}]\nset yrange [{}:-0.5]\nset xtics ({}) rotate by 90 right\n"
          "set ytics ({})\nset cbrange [{}:{}]\nset cbtics {}\n"
          "set colorbox user origin screen {:.4f}, screen 0.3 size screen {:.4f}, screen 0.4 "
          "noborder\n"
          "set label 'component of the key' at graph 0.5, screen 0.08/height center\n"
          "set label 'component of the query' at screen 0.1/width, graph 0.5 center rotate\n"
          "set label {} at screen 0.5, screen 1 - 0.12/height center font ',{}'\n",
          style::kTiny, static_cast<double>(columns.size()) - 0.5,
          static_cast<double>(rows.size()) - 0.5, label_ticks(columns), label_ticks(rows), -largest,
          largest, nice_tick_step(largest, 2), 1 - 0.5 / figure.width, 0.09 / figure.width,
          gnuplot_literal(shorten_text(title, 60)), style::kSmall) +
      "plot " + plot_heatmap_cells(1, 2, 3) + "\n";
}

// Place of a component in the graph: layer and row. Heads are at their number, MLPs below them.
struct GraphPlace {
  double x = -1;
  double y = -1;
};

GraphPlace graph_place(const std::string& component) {
  int layer = 0;
  int head = 0;
  if (std::sscanf(component.c_str(), "L%dH%d", &layer, &head) == 2)
    return {static_cast<double>(layer), static_cast<double>(head)};
  if (component.ends_with("_mlp_out")) return {std::atof(component.c_str()), -1};
  return {-1, component == "embed" ? 0.0 : component == "pos_embed" ? 1.0 : -1.0};
}

}  // namespace

Figure attribution_matrix(const AnalysisResults& results) {
  const ResultFrame& sums = results.frame("attribution_components");
  const ResultFrame& frame = results.frame("attribution");
  const auto scores = rows_by_score(sums);
  if (scores.empty()) return {};
  const auto q = largest_components(sums, scores[0].rows, "q", kMatrixComponents);
  const auto k = largest_components(sums, scores[0].rows, "k", kMatrixComponents);
  Figure figure;
  figure.data = empty_table("integer x, integer y, real value, text q_component, text k_component");
  double largest = 1e-12;
  const auto add = [&](std::size_t x, std::size_t y, double value, const std::string& query,
                       const std::string& key) {
    figure.data.add({as_integer_cell(x), as_integer_cell(y), value, query, key});
    largest = std::max(largest, std::fabs(value));
  };
  const auto kept = rows_by_score(frame);
  for (const auto row : kept.front().rows) {
    const auto& query = frame.text_column("q_component")[row];
    const auto& key = frame.text_column("k_component")[row];
    const auto y = place_of(q.labels, query);
    const auto x = place_of(k.labels, key);
    if (x < k.labels.size() && y < q.labels.size())
      add(x, y, frame.real_column("value")[row], query, key);
  }
  for (std::size_t y = 0; y < q.labels.size(); ++y)
    add(k.labels.size() + 1, y, q.values[y], q.labels[y], "all");
  for (std::size_t x = 0; x < k.labels.size(); ++x)
    add(x, q.labels.size() + 1, k.values[x], "all", k.labels[x]);
  figure.title = "Which components of query and key make a score";
  draw_matrix(figure, q.labels, k.labels, largest, scores[0].title);
  figure.caption = fmt::format(
      "Contributions to the score of {}: rows are components of the query, columns components of "
      "the key, the {} largest of each side. Red raises the score, blue lowers it. The column and "
      "the row `sum` hold exact sums over all components of the other side. Cells are drawn for "
      "the component pairs that attribution.parquet keeps (--top).",
      replace_control_characters(scores[0].title), kMatrixComponents);
  return figure;
}

Figure attribution_bars(const AnalysisResults& results) {
  const ResultFrame& frame = results.frame("attribution");
  auto scores = rows_by_score(frame);
  scores.resize(std::min(scores.size(), kShownScores));
  if (scores.empty()) return {};
  constexpr std::size_t kBars = 8;
  Figure figure;
  figure.data = empty_table("integer y, real value, text contribution, text score");
  std::string ticks;
  std::string titles;
  std::int64_t y = 0;
  for (const auto& [title, rows] : scores) {
    titles += fmt::format("set label {} at graph 0, first {} font ',{}'\n",
                          gnuplot_literal(shorten_text(title, 60)), y++, style::kTiny);
    for (std::size_t i = 0; i < std::min(rows.size(), kBars); ++i) {
      const auto name = fmt::format("{} · {}", frame.text_column("q_component")[rows[i]],
                                    frame.text_column("k_component")[rows[i]]);
      figure.data.add(
          {y, frame.real_column("value")[rows[i]], name, replace_control_characters(title)});
      ticks += fmt::format("{}{} {}", ticks.empty() ? "" : ", ", gnuplot_literal(name), y++);
    }
  }
  figure.title = "Largest contributions to scores";
  figure.height = 0.55 + 0.13 * static_cast<double>(y);
  figure.script =
      margin_commands(1.35, style::kColumn - 0.1, 0.45, figure.height - 0.08) + titles +
      fmt::format(
          "unset grid\nset border 1\nset yrange [{}:-0.7]\nset ytics ({}) scale 0 font ',{}'\n"
          "set xlabel 'contribution to the score'\nset arrow from 0, graph 0 to 0, graph 1 nohead "
          "lw 0.6 lc rgb '{}'\n"
          "plot data using (0):1:(0):2:($1 - 0.38):($1 + 0.38) with boxxyerror fillstyle solid "
          "lc rgb '{}'\n",
          static_cast<double>(y) - 0.3, ticks, style::kTiny, style::kFaint, style::kQuery);
  figure.caption = fmt::format(
      "The {} largest contributions (component of the query · component of the key) to the first "
      "{} scores of attribution.parquet, each above its bars: head, query token, key token with "
      "their positions.",
      kBars, scores.size());
  return figure;
}

Figure score_by_frequency(const AnalysisResults& results) {
  auto figure = score_curves(results.frame("pairs"), "wavelength", "contribution to the score",
                             "set xlabel 'wavelength of the rotary pair (tokens)'\n");
  figure.title = "Scores by rotary frequency";
  figure.caption =
      "Contribution of every rotary pair to the score, by its wavelength in tokens. Dimensions "
      "without rotation are in pairs.parquet and not drawn. The values of a score sum to it.";
  return figure;
}

Figure score_by_distance(const AnalysisResults& results) {
  auto figure = score_curves(results.frame("distance_curve"), "distance", "score",
                             "set xlabel 'distance from query to key (tokens)'\n"
                             "set xrange [1:*]\n");
  figure.title = "Scores of the same content at other distances";
  figure.caption =
      "The score that the same query and key content would have at another distance: the rotation "
      "alone is changed. Layers without RoPE give a flat line.";
  return figure;
}

Figure composition_graph(const AnalysisResults& results) {
  const ResultFrame& frame = results.frame("composition_components");
  const auto& explained = frame.real_column("explained");
  std::set<std::pair<double, double>> targets;
  double layers = 1;
  double heads = 1;
  Figure figure;
  figure.data = empty_table(
      "real x, real y, real dx, real dy, real explained, integer key_side, text component, text "
      "head");
  for (std::size_t row = 0; row < frame.rows(); ++row) {
    if (frame.run_indices()[row] != results.runs().size() - 1) continue;
    const auto layer = static_cast<double>(frame.integer_column("layer")[row]);
    const auto head = static_cast<double>(frame.integer_column("head")[row]);
    layers = std::max(layers, layer);
    heads = std::max(heads, head);
    targets.emplace(layer, head);
    if (!(std::fabs(explained[row]) >= 0.03)) continue;
    const auto& component = frame.text_column("component")[row];
    const auto from = graph_place(component);
    heads = std::max(heads, from.y);
    figure.data.add({from.x, from.y, layer - from.x, head - from.y, explained[row],
                     std::int64_t{frame.text_column("side")[row] == "k"}, component,
                     fmt::format("{}.{}", layer, head)});
  }
  std::string marks;
  for (const auto& [layer, head] : targets)
    marks += fmt::format("set label '' at {}, {} point pt {} ps 0.9*mark lc rgb '{}' front\n",
                         layer, head, style::kDiamond, style::kInk);
  const Legend legend({{"into queries", style::kQuery, style::kCircle},
                       {"into keys", style::kKey, style::kSquare},
                       {"head", style::kInk, style::kDiamond}},
                      style::kPage / 1.4);
  figure.width = style::kPage / 1.4;
  figure.height = style::kHeight * 1.2 + legend.height();
  // gnuplot has no variable line width, so there are three: shares below 0.1, below 0.3 and above.
  const auto edges = [](int key_side, const char* colour, int point) {
    std::string plots;
    for (const auto& [low, high, width] :
         {std::array{0.0, 0.1, 0.5}, std::array{0.1, 0.3, 1.5}, std::array{0.3, 1e9, 3.0}})
      plots += fmt::format(
          "data using ($6 == {} && abs($5) >= {} && abs($5) < {} ? $1 : NaN):2:3:4 with vectors "
          "nohead lw {} lc rgb '{}', \\\n  ",
          key_side, low, high, width, colour);
    return plots +
           fmt::format(
               "data using ($6 == {0} ? $1 : NaN):2:(0.3 + abs($5)) with points pt {2} ps variable "
               "lc rgb '{1}', \\\n  data using ($6 == {0} && abs($5) >= 0.1 ? $1 : NaN):2:7 with "
               "labels noenhanced offset 0, 0.7 font ',{3}' tc rgb '{1}'",
               key_side, colour, point, style::kNote);
  };
  figure.title = "Which components feed the queries and keys of heads";
  figure.script =
      margin_commands(0.55, figure.width - 0.15, 0.45 + legend.height(), figure.height - 0.15) +
      legend.label_commands() + marks +
      fmt::format(
          "set xrange [-1.5:{}]\nset yrange [-1.7:{}]\nset xtics 1\nset xtics add ('embed' -1)\n"
          "set ytics 1\nset ytics add ('MLP' -1)\nset xlabel 'layer'\n"
          "set label 'head' at screen 0.1/width, graph 0.5 center rotate\n",
          layers + 0.5, heads + 0.9) +
      "plot " + edges(0, style::kQuery, style::kCircle) + ", \\\n  " +
      edges(1, style::kKey, style::kSquare) + "\n";
  figure.caption =
      "Edges lead from a component of the residual stream to the head (diamond) whose queries or "
      "keys it feeds. Width and marker: share of the variance of the head's scores that the "
      "component explains, over sampled pairs of query and key; shares below 0.03 are left out, "
      "names are written from 0.1 on. Biases and learned positions stand below and above `embed`. "
      "With several checkpoints the last one is drawn.";
  return figure;
}

Figure composition_over_runs(const AnalysisResults& results) {
  const ResultFrame& frame = results.frame("composition_components");
  const auto& explained = frame.real_column("explained");
  const auto runs = results.runs().size();
  // Share of each component of the keys of the first head by run.
  std::map<std::string, std::vector<double>> shares;
  const auto layer = frame.integer_column("layer").front();
  const auto head = frame.integer_column("head").front();
  for (std::size_t row = 0; row < frame.rows(); ++row)
    if (frame.text_column("side")[row] == "k" && frame.integer_column("layer")[row] == layer &&
        frame.integer_column("head")[row] == head) {
      auto& values = shares[frame.text_column("component")[row]];
      values.resize(runs, kNan);
      values[frame.run_indices()[row]] = explained[row];
    }
  // The three heads and the three other components that explain the largest share in any run.
  std::vector<std::string> shown;
  for (const bool heads : {true, false}) {
    std::vector<std::pair<double, std::string>> order;
    for (const auto& [component, values] : shares) {
      double most = 0;
      for (const double value : values) most = std::max(most, std::fabs(value));
      if ((graph_place(component).x >= 0 && component.starts_with('L')) == heads)
        order.emplace_back(-most, component);
    }
    std::ranges::sort(order);
    for (std::size_t i = 0; i < std::min<std::size_t>(order.size(), 3); ++i)
      shown.push_back(order[i].second);
  }
  TrajectoryTable table(results);
  std::vector<PlotSeries> series;
  for (std::size_t i = 0; i < shown.size(); ++i) {
    const auto& component = shown[i];
    const auto column = fmt::format("${}", table.add(component, shares[component]));
    series.push_back({{escape_markup(component), style::kFamilies[i], style::kFamilyPoints[i]},
                      column,
                      column,
                      column});
  }
  Figure figure;
  figure.title = "What feeds the keys of a head during training";
  figure.caption = fmt::format(
      "Share of the variance of the scores of head {}.{} that each component of its keys explains, "
      "over sampled pairs of query and key: the three heads and the three other components with "
      "the largest share in any run. Dashed lines separate phases.",
      layer, head);
  return table.draw(std::move(figure),
                    {{"explained variance", "set yrange [*:*]\n", plot_series(series, runs)}},
                    {.legend = legend_entries(series)});
}

}  // namespace qkscope
