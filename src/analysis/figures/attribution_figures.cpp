// Figures of attention during training, attention by distance and outlier channels of keys, from
// statistics over all tokens. Figures of score attribution and of head composition.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include "analysis/figures/run_plots.h"
#include "base/core/numbers.h"
#include "base/core/project.h"

namespace qkscope {
namespace {

// Mean attention mass by distance band (bit width of the distance) and head class.
using AttentionMassByBand = std::map<std::int64_t, std::map<std::string, std::vector<double>>>;

AttentionMassByBand attention_mass_by_distance_band(const AnalysisResults& results) {
  const ResultFrame& frame = results.frame("distance");
  const ResultFrame& taxonomy = results.frame("taxonomy");
  std::map<HeadOfRun, std::string> classes;
  for (std::size_t row = 0; row < taxonomy.row_count(); ++row)
    classes[taxonomy.head_at(row)] = taxonomy.text_column("class")[row];
  AttentionMassByBand masses;
  for (std::size_t row = 0; row < frame.row_count(); ++row) {
    const auto found = classes.find(frame.head_at(row));
    const double mass = frame.real_column("mass")[row];
    if (found == classes.end() || std::isnan(mass)) continue;
    masses[frame.nullable_integer_column("width")[row]][found->second].push_back(mass);
  }
  // Drop distance bands beyond the longest text: no head has attention mass there.
  while (masses.size() > 1 &&
         std::ranges::all_of(masses.rbegin()->second,
                             [](const auto& of_class) { return mean_of(of_class.second) == 0; }))
    masses.erase(std::prev(masses.end()));
  return masses;
}

// Returns the CSV of the key channels: `ratio` is the largest magnitude of a channel over the
// median of its head's channels; `row` counts the heads of all layers from the top of the map.
Table channel_ratio_table(const ResultFrame& frame) {
  const auto& absmax = frame.real_column("absmax");
  std::map<std::pair<bool, HeadOfRun>, std::vector<std::size_t>> heads;
  std::map<HeadOfRun, std::int64_t> map_rows;
  for (std::size_t row = 0; row < frame.row_count(); ++row) {
    heads[{frame.text_column("stage")[row] == "post", frame.head_at(row)}].push_back(row);
    map_rows[frame.head_at(row)] = 0;
  }
  std::int64_t next = 0;
  for (auto& [place, map_row] : map_rows) map_row = next++;
  Table table = empty_table(
      "integer channel, integer row, real ratio, integer post, integer layer, integer head");
  for (const auto& [key, rows] : heads) {
    const auto& [post, place] = key;
    const auto ranges = to_vector(rows, [&](std::size_t row) { return absmax[row]; });
    const double middle = quantile_of(ranges, 0.5);
    if (!(middle > 0)) continue;
    for (const auto row : rows)
      table.add({frame.nullable_integer_column("channel")[row], map_rows[place],
                 absmax[row] / middle, std::int64_t{post}, place.layer, place.head});
  }
  return table;
}

constexpr std::size_t kMatrixComponents = 14;  // per side
constexpr std::size_t kShownScores = 4;

struct ScoreRows {
  std::string title;  // "18.6: ' b' (40) to ' a' (12)"
  std::vector<std::size_t> rows;
};

// Groups table rows of the first run by (query, key) pair, in order; at most kShownScores pairs.
std::vector<ScoreRows> group_rows_by_score(const ResultFrame& frame) {
  std::map<std::vector<std::int64_t>, std::size_t> places;
  std::vector<ScoreRows> scores;
  for (std::size_t row = 0; row < frame.row_count(); ++row) {
    if (frame.run_indices()[row] != 0) continue;
    std::vector<std::int64_t> key;
    for (const char* name : {"layer", "head", "query", "key"})
      key.push_back(frame.integer_column(name)[row]);
    const auto [place, anew] = places.try_emplace(key, scores.size());
    if (anew)
      scores.push_back(
          {replace_control_characters(fmt::format("{}.{}: '{}' ({}) to '{}' ({})", key[0], key[1],
                                                  frame.text_column("query_token")[row], key[2],
                                                  frame.text_column("key_token")[row], key[3])),
           {}});
    scores[place->second].rows.push_back(row);
  }
  scores.resize(std::min(scores.size(), kShownScores));
  return scores;
}

// Appends the tick "'name' place" to the tick list of a gnuplot command `set xtics (...)`.
void add_tick(std::string& ticks, const std::string& name, std::int64_t place) {
  ticks += fmt::format("{}{} {}", ticks.empty() ? "" : ", ", gnuplot_literal(name), place);
}

// Axis of a contribution matrix: a tick per component, largest sum first, then the tick "sum".
struct MatrixAxis {
  std::vector<std::size_t> rows;               // of the table, one row per component
  std::map<std::string, std::int64_t> places;  // by component
  std::string ticks;

  std::int64_t sum_index() const { return std::ssize(places) + 1; }
};

MatrixAxis matrix_axis(const ResultFrame& frame, const std::vector<std::size_t>& rows,
                       const std::string& side) {
  MatrixAxis axis{rows, {}, {}};
  std::erase_if(axis.rows, [&](std::size_t row) { return frame.text_column("side")[row] != side; });
  std::ranges::stable_sort(axis.rows, std::greater(), [&](std::size_t row) {
    return std::fabs(frame.real_column("value")[row]);
  });
  axis.rows.resize(std::min(axis.rows.size(), kMatrixComponents));
  for (const auto row : axis.rows) {
    const auto& component = frame.text_column("component")[row];
    add_tick(axis.ticks, component, std::ssize(axis.places));
    axis.places.emplace(component, std::ssize(axis.places));
  }
  add_tick(axis.ticks, "sum", axis.sum_index());
  return axis;
}

// Coordinates in the head composition graph: x is the layer, y the head; MLPs are below all heads.
struct GraphCoordinates {
  double x = -1;
  double y = -1;
};

GraphCoordinates graph_coordinates(const std::string& component) {
  int layer = 0;
  int head = 0;
  if (std::sscanf(component.c_str(), "L%dH%d", &layer, &head) == 2)
    return {static_cast<double>(layer), static_cast<double>(head)};
  if (component.ends_with("_mlp_out")) return {std::atof(component.c_str()), -1};
  return {-1, component == "embed" ? 0.0 : component == "pos_embed" ? 1.0 : -1.0};
}

// Returns the three heads and three other components with the largest variance share in any run.
std::vector<std::string> top_components(const std::map<std::string, std::vector<double>>& shares) {
  std::vector<std::string> shown;
  for (const bool heads : {true, false}) {
    std::vector<std::pair<double, std::string>> order;
    for (const auto& [component, values] : shares)
      if (component.starts_with('L') == heads) {
        double most = 0;
        for (const double value : values) most = std::max(most, std::fabs(value));
        order.emplace_back(-most, component);
      }
    std::ranges::sort(order);
    order.resize(std::min<std::size_t>(order.size(), 3));
    for (const auto& [share, component] : order) shown.push_back(component);
  }
  return shown;
}

}  // namespace

Figure draw_attention_onset(const AnalysisResults& results, const FigureKind&) {
  const ResultFrame& frame = results.frame("attention");
  TrajectoryTable table(results);
  std::vector<PlotSeries> series;
  const auto add = [&](const char* name, std::vector<double> values, LegendEntry look) {
    series.push_back(table.add_line_series(name, std::move(values), std::move(look)));
  };
  add("induction_largest",
      to_vector(frame.group_by_run("induction_head"),
                [](const auto& heads) { return heads.empty() ? kNan : std::ranges::max(heads); }),
      {"strongest induction head", style::kKey, style::kDiamond});
  add("sink_rate", mean_by_run(frame.group_by_run("sink_rate_64")),
      {"sinks", style::kNope, style::kSquare});
  add("position_dominated", mean_by_run(class_membership_by_run(results, "position_dominated")),
      {"position-dominated heads", style::kQuery, style::kCircle});
  return table.draw({},
                    {{"score or share", "set yrange [0:1.02]\nset ytics 0.2\n",
                      line_plot_command(series, results.runs().size())}},
                    {.legend = legend_entries(series)});
}

Figure draw_distance_by_class(const AnalysisResults& results, const FigureKind& kind) {
  auto masses = attention_mass_by_distance_band(results);
  if (masses.empty()) return {};
  Figure figure;
  figure.data.column("width", Table::Type::integer).column("distance_low", Table::Type::integer);
  std::vector<LegendEntry> entries;
  std::string plots;
  std::vector<const char*> shown;
  for (const auto& c : style::kClasses) {
    const auto has_class = [&](const auto& band) { return band.second.contains(c.name); };
    if (std::ranges::none_of(masses, has_class)) continue;
    figure.data.column(c.name, Table::Type::real);
    entries.push_back({c.title, c.colour, style::kCircle});
    shown.push_back(c.name);
    plots += fmt::format("{}data using 1:{} with linespoints pt 7 ps 0.35*mark lw 1.4 lc rgb '{}'",
                         plots.empty() ? "plot " : ", \\\n  ", shown.size() + 2, c.colour);
  }
  if (shown.empty()) return make_empty_figure("no head has a class");
  std::string ticks;
  for (auto& [width, of_class] : masses) {
    const std::int64_t low = width == 0 ? 0 : std::int64_t{1} << (width - 1);
    std::vector<Table::Cell> cells = {width, low};
    for (const char* name : shown)
      cells.emplace_back(of_class.contains(name) ? mean_of(of_class[name]) : kNan);
    figure.data.add(std::move(cells));
    if (width % 2 == 0) ticks += fmt::format("{}'{}' {}", ticks.empty() ? "" : ", ", low, width);
  }
  const Legend legend(entries, style::kColumn);
  place_plot_above_legend(figure, legend);
  figure.script += kind.format("script", fmt::arg("ticks", ticks), fmt::arg("plots", plots),
                               fmt::arg("right", to_double(masses.rbegin()->first) + 0.5));
  return figure;
}

Figure draw_key_channel_map(const AnalysisResults& results, const FigureKind& kind) {
  Figure figure;
  figure.data = channel_ratio_table(results.frame("key_channels"));
  for (const std::int64_t post : {0, 1})
    if (std::ranges::count(figure.data.find("post")->integers, post) == 0)
      return make_empty_figure(
          fmt::format("the statistics have no keys {} RoPE", post == 1 ? "after" : "before"));
  const auto last = [&](const char* column) {
    return static_cast<double>(std::ranges::max(figure.data.find(column)->integers));
  };
  const PanelGrid grid(grid_options(kind, 2));
  // The colour scale ends at the 99.9th percentile: outlier channels would darken the whole map.
  const double top = std::max(2.0, quantile_of(figure.data.find("ratio")->reals, 0.999));
  const auto settings =
      gnuplot_palette_command(style::kCividis) +
      kind.format("settings", fmt::arg("top", top), fmt::arg("step", nice_tick_step(top, 3)),
                  fmt::arg("text", 1 - 0.08 / grid.width_inches()),
                  fmt::arg("left", 1 - 0.5 / grid.width_inches()),
                  fmt::arg("wide", 0.09 / grid.width_inches()),
                  fmt::arg("right", last("channel") + 0.5), fmt::arg("bottom", last("row") + 0.5));
  grid.draw(figure, settings, [&](std::size_t post) -> PanelGrid::Panel {
    return {post == 0 ? "before RoPE" : "after RoPE", kind.format("panel", fmt::arg("post", post))};
  });
  return figure;
}

Figure draw_attribution_matrix(const AnalysisResults& results, const FigureKind& kind) {
  const ResultFrame& sums = results.frame("attribution_components");
  const ResultFrame& frame = results.frame("attribution");
  const auto scores = group_rows_by_score(sums);
  if (scores.empty()) return {};
  const auto q = matrix_axis(sums, scores[0].rows, "q");
  const auto k = matrix_axis(sums, scores[0].rows, "k");
  Figure figure;
  figure.data = empty_table("integer x, integer y, real value, text q_component, text k_component");
  double largest = 1e-12;
  const auto add = [&](std::int64_t x, std::int64_t y, double value, const std::string& query,
                       const std::string& key) {
    figure.data.add({x, y, value, query, key});
    largest = std::max(largest, std::fabs(value));
  };
  const auto kept = group_rows_by_score(frame);
  for (const auto row : kept.front().rows) {
    const auto& query = frame.text_column("q_component")[row];
    const auto& key = frame.text_column("k_component")[row];
    if (q.places.contains(query) && k.places.contains(key))
      add(k.places.at(key), q.places.at(query), frame.real_column("value")[row], query, key);
  }
  const auto& components = sums.text_column("component");
  for (const auto row : q.rows)
    add(k.sum_index(), q.places.at(components[row]), sums.real_column("value")[row],
        components[row], "all");
  for (const auto row : k.rows)
    add(k.places.at(components[row]), q.sum_index(), sums.real_column("value")[row], "all",
        components[row]);
  const auto columns = static_cast<double>(k.sum_index() + 1);
  const auto lines = static_cast<double>(q.sum_index() + 1);
  figure.width = 0.8 + 0.17 * columns + 0.65;
  figure.height = 0.7 + 0.17 * lines + 0.35;
  figure.script =
      margin_commands(0.8, 0.8 + 0.17 * columns, 0.7, figure.height - 0.35) +
      gnuplot_palette_command(style::kAroundZero) +
      kind.format("script", fmt::arg("right", columns - 0.5), fmt::arg("bottom", lines - 0.5),
                  fmt::arg("x_ticks", k.ticks), fmt::arg("y_ticks", q.ticks),
                  fmt::arg("largest", largest), fmt::arg("step", nice_tick_step(largest, 2)),
                  fmt::arg("bar", 1 - 0.5 / figure.width),
                  fmt::arg("bar_width", 0.09 / figure.width),
                  fmt::arg("title", gnuplot_literal(shorten_text(scores[0].title, 60))),
                  fmt::arg("cells", heatmap_plot_clause(1, 2, 3)));
  figure.caption = kind.format("caption", scores[0].title, kMatrixComponents);
  return figure;
}

Figure draw_attribution_bars(const AnalysisResults& results, const FigureKind& kind) {
  const ResultFrame& frame = results.frame("attribution");
  const auto scores = group_rows_by_score(frame);
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
    for (const auto row : std::span(rows).first(std::min(rows.size(), kBars))) {
      const auto name = fmt::format("{} · {}", frame.text_column("q_component")[row],
                                    frame.text_column("k_component")[row]);
      figure.data.add({y, frame.real_column("value")[row], name, title});
      add_tick(ticks, name, y++);
    }
  }
  figure.height = 0.55 + 0.13 * static_cast<double>(y);
  figure.script = margin_commands(1.35, style::kColumn - 0.1, 0.45, figure.height - 0.08) + titles +
                  kind.format("script", fmt::arg("bottom", static_cast<double>(y) - 0.3),
                              fmt::arg("ticks", ticks));
  figure.caption = kind.format("caption", kBars, scores.size());
  return figure;
}

Figure draw_score_curves(const AnalysisResults& results, const FigureKind& kind) {
  const ResultFrame& frame = results.frame(kind.tables.back());
  const auto scores = group_rows_by_score(frame);
  if (scores.empty()) return {};
  const auto x = kind.text("x");
  Figure figure;
  figure.data = empty_table(fmt::format("real {}, real value, integer score, text title", x));
  std::vector<LegendEntry> entries;
  std::string plots;
  const auto xs = frame.numeric_column(x);
  for (std::size_t i = 0; i < scores.size(); ++i) {
    for (const auto row : scores[i].rows)
      if (!std::isnan(xs[row]))
        figure.data.add(
            {xs[row], frame.real_column("value")[row], as_integer_cell(i), scores[i].title});
    entries.push_back(
        {escape_markup(shorten_text(scores[i].title, 44)), style::kFamilies[i], style::kCircle});
    plots += fmt::format(
        "{}data using 1:($3 == {} ? $2 : NaN) with linespoints pt 7 ps 0.25*mark lw 1.2 lc rgb "
        "'{}'",
        i == 0 ? "plot " : ", \\\n  ", i, style::kFamilies[i]);
  }
  place_plot_above_legend(figure, Legend(entries, style::kColumn));
  figure.script += kind.format("script", fmt::arg("plots", plots));
  return figure;
}

Figure draw_composition_graph(const AnalysisResults& results, const FigureKind& kind) {
  const ResultFrame& frame = results.frame("composition_components");
  const std::vector<LegendEntry> looks = {{"into queries", style::kQuery, style::kCircle},
                                          {"into keys", style::kKey, style::kSquare},
                                          {"head", style::kInk, style::kDiamond}};
  double layers = 1;
  double heads = 1;
  std::set<std::string> marks;  // of the heads
  std::string edges;
  Figure figure;
  figure.data = empty_table(
      "real x, real y, real dx, real dy, real explained, integer key_side, text component, text "
      "head");
  for (std::size_t row = 0; row < frame.row_count(); ++row) {
    if (frame.run_indices()[row] != results.runs().size() - 1) continue;
    const auto layer = static_cast<double>(frame.integer_column("layer")[row]);
    const auto head = static_cast<double>(frame.integer_column("head")[row]);
    const auto& component = frame.text_column("component")[row];
    const double share = frame.real_column("explained")[row];
    const auto from = graph_coordinates(component);
    layers = std::max(layers, layer);
    heads = std::max(heads, head);
    marks.insert(kind.format("head", fmt::arg("x", layer), fmt::arg("y", head)));
    if (!(std::fabs(share) >= 0.03)) continue;
    heads = std::max(heads, from.y);
    const bool of_key = frame.text_column("side")[row] == "k";
    const auto& look = looks[of_key ? 1 : 0];
    const double size = std::min(std::fabs(share), 1.0);
    edges += kind.format("edge", fmt::arg("from_x", from.x), fmt::arg("from_y", from.y),
                         fmt::arg("x", layer), fmt::arg("y", head),
                         fmt::arg("width", 0.3 + 2.5 * size), fmt::arg("size", 0.3 + size),
                         fmt::arg("name", gnuplot_literal(size >= 0.1 ? component : "")),
                         fmt::arg("colour", look.colour), fmt::arg("point", look.point_type));
    figure.data.add({from.x, from.y, layer - from.x, head - from.y, share, std::int64_t{of_key},
                     component, fmt::format("{}.{}", layer, head)});
  }
  for (const auto& mark : marks) edges += mark;
  const Legend legend(looks, style::kPage / 1.4);
  figure.width = style::kPage / 1.4;
  figure.height = style::kHeight * 1.2 + legend.height_inches();
  figure.script =
      margin_commands(0.55, figure.width - 0.15, 0.45 + legend.height_inches(),
                      figure.height - 0.15) +
      legend.label_commands() + edges +
      kind.format("script", fmt::arg("right", layers + 0.5), fmt::arg("top", heads + 0.9));
  return figure;
}

Figure draw_composition_over_runs(const AnalysisResults& results, const FigureKind& kind) {
  const ResultFrame& frame = results.frame("composition_components");
  const auto runs = results.runs().size();
  const auto layer = frame.integer_column("layer").front();
  const auto head = frame.integer_column("head").front();
  // Variance of the first head's scores explained by each key component, per run.
  std::map<std::string, std::vector<double>> shares;
  for (std::size_t row = 0; row < frame.row_count(); ++row)
    if (frame.text_column("side")[row] == "k" && frame.integer_column("layer")[row] == layer &&
        frame.integer_column("head")[row] == head) {
      auto& values = shares[frame.text_column("component")[row]];
      values.resize(runs, kNan);
      values[frame.run_indices()[row]] = frame.real_column("explained")[row];
    }
  TrajectoryTable table(results);
  std::vector<PlotSeries> series;
  for (const auto& component : top_components(shares)) {
    const auto look = family_legend_entry(series.size(), escape_markup(component));
    series.push_back(table.add_line_series(component, shares[component], look));
  }
  Figure figure;
  figure.caption = kind.format("caption", layer, head);
  return table.draw(std::move(figure),
                    {{"explained variance", "set yrange [*:*]\n", line_plot_command(series, runs)}},
                    {.legend = legend_entries(series)});
}

}  // namespace qkscope
