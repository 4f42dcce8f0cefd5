// Queries and keys of single heads as points shaded by position: collages of some heads on two
// axes, and one head on every plane of the orthogonal complement.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "analysis/figures/results.h"
#include "analysis/figures/script.h"
#include "analysis/figures/style.h"

namespace qkscope {
namespace {

constexpr std::size_t kCollageHeads = 12;

// Fills in the principal components that the user selected as axes.
std::string fill_in_components(const AnalysisResults& results, const FigureKind& kind,
                               const char* key) {
  const auto [x, y] = results.choices().components;
  return kind.fill(key, x, y);
}

// Range [first, last) of the rows of one head in the table head_scatter.
struct HeadRange {
  std::size_t first;
  std::size_t last;
};

// Returns the heads of the last run that have values on both axes. Rows of a head are contiguous.
std::vector<HeadRange> heads_of_last_run(const ResultFrame& scatter, const std::vector<double>& x,
                                         const std::vector<double>& y) {
  const auto& layers = scatter.integer_column("layer");
  const auto& heads = scatter.integer_column("head");
  const auto run = std::ranges::max(scatter.run_indices());
  std::vector<HeadRange> ranges;
  for (std::size_t row = 0; row < scatter.rows(); ++row) {
    if (scatter.run_indices()[row] != run || std::isnan(x[row]) || std::isnan(y[row])) continue;
    if (ranges.empty() || ranges.back().last != row || layers[ranges.back().first] != layers[row] ||
        heads[ranges.back().first] != heads[row])
      ranges.push_back({row, row});
    ranges.back().last = row + 1;
  }
  return ranges;
}

// Returns `count` heads spread over layers and over head numbers: one head from each of `count`
// equal strata. The position inside a stratum follows the golden ratio (a low-discrepancy
// sequence); a fixed position would show the same head number of every second layer.
std::vector<HeadRange> select_evenly_spread_heads(const std::vector<HeadRange>& all,
                                                  std::size_t count) {
  if (all.size() <= count) return all;
  constexpr double kGoldenRatio = 0.6180339887498949;
  std::vector<HeadRange> chosen;
  for (std::size_t i = 0; i < count; ++i) {
    const auto begin = i * all.size() / count;
    const auto size = static_cast<double>((i + 1) * all.size() / count - begin);
    const double place = std::fmod(static_cast<double>(i + 1) * kGoldenRatio, 1.0);
    chosen.push_back(all[begin + static_cast<std::size_t>(place * size)]);
  }
  return chosen;
}

// A row of head_scatter or head_planes, and the number of the panel that shows it.
struct PanelRow {
  std::int64_t panel;
  std::size_t row;
};

// Returns the CSV of points shaded by position (position / largest position). `panel_column`: name
// of the column that holds the panel number.
Table shaded_points(const AnalysisResults& results, const ResultFrame& frame,
                    const std::vector<PanelRow>& rows, const std::string& panel_column,
                    const std::string& x, const std::string& y) {
  const auto& positions = frame.integer_column("position");
  std::int64_t last = 1;
  for (const auto& [panel, row] : rows) last = std::max(last, positions[row]);
  Table table = empty_table(
      fmt::format("integer {}, integer key, real shade, real {}, real {}, integer position, "
                  "integer layer, integer head, text model",
                  panel_column, x, y));
  for (const auto& [panel, row] : rows)
    table.add({panel, std::int64_t{frame.text_column("side")[row] == "k"},
               static_cast<double>(positions[row]) / static_cast<double>(last),
               frame.real_column(x)[row], frame.real_column(y)[row], positions[row],
               frame.nullable_integer_column("layer")[row], frame.head_column()[row],
               results.run_label(frame.run_indices()[row])});
  return table;
}

double tick_step(const std::vector<double>& values, const HeadRange& head) {
  const auto [low, high] =
      std::minmax_element(values.begin() + static_cast<std::ptrdiff_t>(head.first),
                          values.begin() + static_cast<std::ptrdiff_t>(head.last));
  return nice_tick_step(*high - *low, 3);
}

// A head of the table head_planes.
struct HeadOfRun {
  std::size_t run;
  std::int64_t layer;
  std::int64_t head;

  bool operator==(const HeadOfRun&) const = default;
};

HeadOfRun head_at(const ResultFrame& planes, std::size_t row) {
  return {planes.run_indices()[row], planes.nullable_integer_column("layer")[row],
          planes.head_column()[row]};
}

// Returns the head selected by the user, or else the first head in the table, of the last run.
std::optional<HeadOfRun> chosen_head(const AnalysisResults& results, const ResultFrame& planes) {
  std::optional<HeadOfRun> found;
  for (std::size_t row = 0; row < planes.rows(); ++row) {
    const auto here = head_at(planes, row);
    const auto name = fmt::format("{}.{}", here.layer, here.head);
    if (!results.choices().head.empty() && results.choices().head != name) continue;
    if (!found || here.run > found->run) found = here;
  }
  return found;
}

// Panel titles by plane number, built from complement.parquet, for example "3: 12.0 %, 0.98".
std::map<std::int64_t, std::string> plane_titles(const AnalysisResults& results,
                                                 const HeadOfRun& head) {
  std::map<std::int64_t, std::string> titles;
  if (!results.has("complement")) return titles;
  const ResultFrame& complement = results.frame("complement");
  for (std::size_t row = 0; row < complement.rows(); ++row)
    if (head_at(complement, row) == head)
      titles[complement.integer_column("pair")[row]] =
          fmt::format("{}: {:.1f} %, {:.2f}", complement.integer_column("pair")[row],
                      100 * complement.real_column("variance_share")[row],
                      complement.real_column("angle_r")[row]);
  return titles;
}

void draw_planes(const AnalysisResults& results, const FigureKind& kind, const HeadOfRun& head,
                 Figure& figure) {
  std::map<std::int64_t, double> sizes;  // largest absolute coordinate of each plane
  const auto& planes = figure.data.find("plane")->integers;
  for (std::size_t row = 0; row < planes.size(); ++row)
    for (const char* axis : {"x", "y"}) {
      double& size = sizes[planes[row]];
      size = std::max(size, std::fabs(figure.data.find(axis)->reals[row]));
    }
  const auto titles = plane_titles(results, head);
  auto options = grid_options(kind, sizes.size());
  options.functions = kind.fill("functions");
  const PanelGrid grid(options);
  auto next = sizes.begin();
  grid.draw(
      figure,
      kind.fill("legend", fmt::arg("y", 1 - 0.09 / grid.height())) +
          fmt::format("unset grid\nunset tics\nset border 15 lw 0.4 lc rgb '{}'\n", style::kFaint),
      [&](std::size_t) -> PanelGrid::Panel {
        const auto [plane, size] = *next++;
        const auto title = titles.find(plane);
        const double edge = size > 0 ? 1.05 * size : 1;
        return {title == titles.end() ? fmt::format("plane {}", plane) : title->second,
                fmt::format("set xrange [{0}:{1}]\nset yrange [{0}:{1}]\n", -edge, edge) +
                    kind.fill("points", fmt::arg("panel", plane), fmt::arg("size", 0.24))};
      });
}

}  // namespace

Figure collage(const AnalysisResults& results, const FigureKind& kind) {
  const ResultFrame& scatter = results.frame("head_scatter");
  const std::string x = fill_in_components(results, kind, "x");
  const std::string y = fill_in_components(results, kind, "y");
  for (const auto& axis : {x, y})
    if (!scatter.has(axis))
      return empty_figure(fmt::format(
          "head_scatter.parquet has no column {}; analyse again with as many --components", axis));
  const auto all = heads_of_last_run(scatter, scatter.real_column(x), scatter.real_column(y));
  const auto heads = select_evenly_spread_heads(all, kCollageHeads);
  if (heads.empty()) return {};
  Figure figure;
  figure.title = fill_in_components(results, kind, "title");
  std::vector<PanelRow> rows;
  for (std::size_t i = 0; i < heads.size(); ++i)
    for (auto row = heads[i].first; row < heads[i].last; ++row)
      rows.push_back({as_integer_cell(i), row});
  figure.data = shaded_points(results, scatter, rows, "panel", x, y);
  auto options = grid_options(kind, heads.size());
  options.x_label = fill_in_components(results, kind, "x_label");
  options.y_label = fill_in_components(results, kind, "y_label");
  options.functions = kind.fill("functions");
  const PanelGrid grid(options);
  grid.draw(
      figure,
      kind.fill("legend", fmt::arg("y", 1 - 0.09 / grid.height())) +
          "unset grid\nset offsets graph 0.05, graph 0.05, graph 0.05, graph 0.05\n",
      [&](std::size_t i) -> PanelGrid::Panel {
        const auto row = heads[i].first;
        return {
            fmt::format("layer {}, head {}{}", scatter.integer_column("layer")[row],
                        scatter.integer_column("head")[row], scatter.is_nope(row) ? " (NoPE)" : ""),
            fmt::format("set xtics {}\nset ytics {}\n", tick_step(scatter.real_column(x), heads[i]),
                        tick_step(scatter.real_column(y), heads[i])) +
                kind.fill("points", fmt::arg("panel", i), fmt::arg("size", 0.28))};
      });
  figure.caption = fmt::format(
      "{} Blue circles are queries, red squares keys, darker the later their position. {} heads of "
      "'{}', spread evenly over layers and head numbers; of each head the rows kept in "
      "head_scatter.parquet.",
      fill_in_components(results, kind, "caption"), heads.size(),
      results.run_title(scatter.run_indices()[heads.front().first]));
  return figure;
}

Figure head_planes(const AnalysisResults& results, const FigureKind& kind) {
  if (!results.has("head_planes") || results.frame("head_planes").rows() == 0)
    return empty_figure("no head's planes were kept: qkscope analyze --planes-of LAYER.HEAD");
  const ResultFrame& planes = results.frame("head_planes");
  const auto head = chosen_head(results, planes);
  if (!head)
    return empty_figure(
        fmt::format("no planes were kept of head {0}; analyse again with --planes-of {0}",
                    results.choices().head));
  Figure figure;
  std::vector<PanelRow> rows;
  for (std::size_t row = 0; row < planes.rows(); ++row)
    if (head_at(planes, row) == *head)
      rows.push_back({planes.nullable_integer_column("plane")[row], row});
  figure.data = shaded_points(results, planes, rows, "plane", "x", "y");
  draw_planes(results, kind, *head, figure);
  figure.title = kind.fill("title", head->layer, head->head);
  figure.caption = kind.fill("caption", head->layer, head->head, results.run_title(head->run));
  return figure;
}

}  // namespace qkscope
