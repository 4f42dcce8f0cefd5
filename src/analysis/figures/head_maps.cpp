// Maps of one model: a cell per head, layers from left to right.
#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "analysis/figures/panels.h"
#include "analysis/figures/registry.h"
#include "analysis/figures/run_axis.h"
#include "analysis/figures/script.h"
#include "analysis/figures/style.h"

namespace qkscope {
namespace {

// A measure of a head, and how its colours run.
struct MapMeasure {
  const char* table;
  const char* column;
  const char* title;
  const char* label;  // of the colours, gnuplot markup
  const char* what;   // the caption's first sentence
  enum class MapColours { to_one, to_largest, signed_to_one, around_zero } colours;
  const char* unit = "";
  bool absolute = false;
};
using MapColours = MapMeasure::MapColours;

struct MapCell {
  std::int64_t layer;
  std::int64_t head;
  double value;
  bool nope;
};

std::vector<MapCell> map_cells(const Results& results, const MapMeasure& measure) {
  const Frame& frame = results.frame(measure.table);
  const auto& values = frame.reals(measure.column);
  const auto* components = frame.has("pc") ? &frame.integers("pc") : nullptr;
  std::vector<MapCell> cells;
  for (std::size_t row = 0; row < frame.rows(); ++row) {
    if (std::isnan(values[row]) || (components && (*components)[row] != 0)) continue;
    cells.push_back({frame.integers("layer")[row], frame.heads()[row],
                     measure.absolute ? std::fabs(values[row]) : values[row],
                     frame.texts("rope")[row] == "nope"});
  }
  return cells;
}

// Where the map lies in the figure. Cells are square where the paper has room for it.
class MapLayout {
 public:
  MapLayout(const std::vector<MapCell>& cells, double right, double below) : right_(right) {
    for (const auto& cell : cells) {
      layers_ = std::max(layers_, cell.layer + 1);
      heads_ = std::max(heads_, cell.head + 1);
      if (cell.nope) nope_.insert(cell.layer);
    }
    bottom_ = 0.32 + below;
    const double wide = style::kColumn - kLeft - right_;
    const double square = static_cast<double>(heads_) * wide / static_cast<double>(layers_);
    tall_ = std::clamp(square, 0.9, 2.4);
    top_ = nope_.empty() ? 0.08 : 0.2;
  }

  double height() const { return bottom_ + tall_ + top_; }
  double plot_top() const { return bottom_ + tall_; }
  double plot_bottom() const { return bottom_; }

  std::string axes() const {
    std::string text = margins({kLeft, style::kColumn - right_, bottom_, bottom_ + tall_});
    text += fmt::format(
        "unset grid\nset border 0\nset tics scale 0 font ',{}'\n"
        "set xrange [-0.5:{}]\nset yrange [-0.5:{}]\nset xtics {} offset 0, 0.4\n"
        "set ytics {} offset 0.4, 0\n",
        style::kSmall, static_cast<double>(layers_) - 0.5, static_cast<double>(heads_) - 0.5,
        ticks(layers_), ticks(heads_));
    text += fmt::format(
        "set label 'layer' at graph 0.5, screen {:.4f}/height center font ',{}'\n"
        "set label 'head' at screen 0.09/width, graph 0.5 center rotate font ',{}'\n",
        bottom_ - 0.24, style::kLabel, style::kLabel);
    for (const auto layer : nope_)
      text += fmt::format(
          "set label '' at first {}, screen {:.4f}/height point pt {} ps 0.4*mark lc rgb '{}'\n",
          layer, plot_top() + 0.06, style::kDiamond, style::kNope);
    if (!nope_.empty())
      text += fmt::format(
          "set label 'NoPE layers' at graph 0, screen {:.4f}/height font ',{}' tc rgb '{}'\n",
          plot_top() + 0.14, style::kPhase, style::kInk);
    return text;
  }

  HoverCell hover(const MapCell& cell, std::string text) const {
    const double wide = (style::kColumn - kLeft - right_) / static_cast<double>(layers_);
    const double tall = tall_ / static_cast<double>(heads_);
    const double left = kLeft + static_cast<double>(cell.layer) * wide;
    const double below = bottom_ + static_cast<double>(cell.head) * tall;
    return {left / style::kColumn,
            1 - (below + tall) / height(),
            (left + wide) / style::kColumn,
            1 - below / height(),
            std::move(text),
            cell.layer,
            cell.head};
  }

 private:
  static constexpr double kLeft = 0.42;

  static double ticks(std::int64_t count) {
    return std::max(1.0, round_step(static_cast<double>(count), 6));
  }

  double right_;
  double bottom_ = 0;
  double tall_ = 0;
  double top_ = 0;
  std::int64_t layers_ = 1;
  std::int64_t heads_ = 1;
  std::set<std::int64_t> nope_;
};

// Cells with a hair around them, so that a pale head differs from one that was not captured.
std::string plot_map_cells(const std::string& x, const std::string& colour) {
  return fmt::format(
      "data using ({}):2:($1 - 0.5):($1 + 0.5):($2 - 0.5):($2 + 0.5){} with boxxyerror fillstyle "
      "solid border lc rgb '#D8D8D8' lw 0.3",
      x, colour);
}

constexpr double kColourBar = 0.62;  // inches beside the map, for the colours' bar

std::string colour_bar(const MapLayout& layout, const std::string& label) {
  const double left = style::kColumn - kColourBar + 0.09;
  return fmt::format(
      "set colorbox user origin screen {:.4f}/width, screen {:.4f}/height size screen "
      "{:.4f}/width, screen {:.4f}/height noborder\n"
      "set cbtics scale 0 offset -0.7, 0 font ',{}'\n"
      "set label '{}' at screen {:.4f}/width, graph 0.5 center rotate font ',{}'\n",
      left, layout.plot_bottom(), 0.08, layout.plot_top() - layout.plot_bottom(), style::kTiny,
      label, style::kColumn - 0.08, style::kLabel);
}

std::vector<double> map_values(const std::vector<MapCell>& cells) {
  std::vector<double> values;
  values.reserve(cells.size());
  for (const auto& cell : cells) values.push_back(cell.value);
  return values;
}

// Range and palette, and what the caption has to say of them. Values are multiplied by `scale`.
struct MapColourRange {
  std::string script;
  std::string words;
};

MapColourRange map_colours(const MapMeasure& measure, const std::vector<MapCell>& cells,
                           double scale) {
  const auto values = map_values(cells);
  switch (measure.colours) {
    case MapColours::to_one:
      return {palette(style::kCividis) + "set cbrange [0:1]\nset cbtics 0.25\n",
              "Colours run from 0 to 1."};
    case MapColours::signed_to_one:
      return {palette(style::kAroundZero) + "set cbrange [-1:1]\nset cbtics 0.5\n",
              "Colours run from -1 (blue) over 0 (white) to 1 (red)."};
    case MapColours::to_largest: {
      const double largest = *std::max_element(values.begin(), values.end());
      const double top = largest > 0 ? largest : 1;
      return {palette(style::kCividis) +
                  fmt::format("set cbrange [0:{}]\nset cbtics {}\n", top, round_step(top, 4)),
              "Colours run from 0 to the largest head."};
    }
    case MapColours::around_zero:
      break;
  }
  // A few heads would leave all others white: the last two of a hundred have the last colour.
  const double far = quantile_of(absolute(values), 0.98) * scale;
  const double top = far > 0 ? far : 1;
  return {palette(style::kAroundZero) +
              fmt::format("set cbrange [{}:{}]\nset cbtics {}\n", -top, top, round_step(top, 2)),
          "White is 0, red above, blue below; the 2 % of heads farthest from 0 share the last "
          "colour."};
}

Figure head_map(const Results& results, const MapMeasure& measure) {
  if (!results.frame(measure.table).has(measure.column))
    return nothing_to_draw(fmt::format("the statistics do not have {}", measure.column));
  const auto cells = map_cells(results, measure);
  if (cells.empty()) return nothing_to_draw("none of its numbers exists");
  Figure figure;
  figure.title = measure.title;
  figure.data.column("layer", Table::Type::integer)
      .column("head", Table::Type::integer)
      .column(measure.absolute ? fmt::format("abs_{}", measure.column) : measure.column,
              Table::Type::real)
      .column("nope", Table::Type::integer);
  const std::string unit = measure.unit;
  const Unit scaled = unit.empty() ? Unit() : unit_for({map_values(cells)}, unit);
  const MapLayout layout(cells, kColourBar, 0);
  for (const auto& cell : cells) {
    figure.data.add({cell.layer, cell.head, cell.value, std::int64_t{cell.nope ? 1 : 0}});
    figure.hover.push_back(layout.hover(
        cell, fmt::format("layer {}, head {}: {} {:.4g}{}{}", cell.layer, cell.head,
                          measure.absolute ? fmt::format("|{}|", measure.column) : measure.column,
                          cell.value, unit.empty() ? "" : " " + unit, cell.nope ? " (NoPE)" : "")));
  }
  const auto colours = map_colours(measure, cells, scaled.scale);
  figure.width = style::kColumn;
  figure.height = layout.height();
  figure.script =
      layout.axes() + colours.script +
      colour_bar(layout, unit.empty() ? measure.label
                                      : fmt::format("{} ({})", measure.label, scaled.text)) +
      "plot " + plot_map_cells("$1", fmt::format(":($3 * {})", scaled.scale)) +
      " linecolor palette\n";
  figure.caption = fmt::format(
      "{} One cell per head of '{}', layers from left to right; heads that were not captured stay "
      "blank. {}",
      measure.what, one_line(results.runs().front().title), colours.words);
  return figure;
}

}  // namespace

Figure head_map_class(const Results& results) {
  const Frame& frame = results.frame("taxonomy");
  const auto& classes = frame.texts("class");
  Figure figure;
  figure.data.column("layer", Table::Type::integer)
      .column("head", Table::Type::integer)
      .column("code", Table::Type::integer)
      .column("nope", Table::Type::integer)
      .column("class", Table::Type::text);
  std::vector<MapCell> cells;
  for (std::size_t row = 0; row < frame.rows(); ++row)
    for (std::size_t code = 0; code < std::size(style::kClasses); ++code)
      if (classes[row] == style::kClasses[code].name)
        cells.push_back({frame.integers("layer")[row], frame.heads()[row],
                         static_cast<double>(code), frame.texts("rope")[row] == "nope"});
  if (cells.empty()) return nothing_to_draw("none of its numbers exists");
  std::vector<KeyEntry> entries;
  for (const auto& c : style::kClasses) entries.push_back({c.title, c.colour, style::kSquare});
  const Key key(entries, style::kColumn);
  const MapLayout layout(cells, 0.1, key.height());
  for (const auto& cell : cells) {
    const auto& c = style::kClasses[static_cast<std::size_t>(cell.value)];
    figure.data.add({cell.layer, cell.head, static_cast<std::int64_t>(cell.value),
                     std::int64_t{cell.nope ? 1 : 0}, std::string(c.name)});
    figure.hover.push_back(
        layout.hover(cell, fmt::format("layer {}, head {}: {}{}", cell.layer, cell.head, c.title,
                                       cell.nope ? " (NoPE)" : "")));
  }
  figure.title = "Class of every head";
  figure.width = style::kColumn;
  figure.height = layout.height();
  figure.script = layout.axes() + key.labels() + "plot \\\n";
  for (std::size_t code = 0; code < std::size(style::kClasses); ++code)
    figure.script += "  " + plot_map_cells(fmt::format("$3 == {} ? $1 : NaN", code), "") +
                     fmt::format(" lc rgb '{}'{}\n", style::kClasses[code].colour,
                                 code + 1 < std::size(style::kClasses) ? ", \\" : "");
  figure.caption = fmt::format(
      "Class of every head by r_q and |r_k| on its first component (bounds {}). One cell per head "
      "of '{}', layers from left to right; heads that were not captured, or have no class, stay "
      "blank.",
      bounds_text(results), one_line(results.runs().front().title));
  return figure;
}

Figure head_map_rq(const Results& results) {
  return head_map(results, {"qk", "r_q", "Position in the queries of every head", "{/:Italic r}_q",
                            "Correlation of queries with position on the first component (r_q).",
                            MapColours::to_one});
}

Figure head_map_rk(const Results& results) {
  return head_map(results,
                  {"qk", "r_k", "Position in the keys of every head", "{/:Italic r}_k",
                   "Correlation of keys with position on the first component (r_k), with its sign; "
                   "the component points where r_q is positive.",
                   MapColours::signed_to_one});
}

Figure head_map_pc0_variance(const Results& results) {
  return head_map(
      results,
      {"qk", "explained_variance", "Variance on the first component of every head", "share on PC0",
       "Share of the variance of a head's pooled queries and keys on its first "
       "component.",
       MapColours::to_largest});
}

Figure head_map_position_r(const Results& results) {
  return head_map(results,
                  {"rotated", "position_r", "Position along the drift of every head",
                   "|{/:Italic r}| along {/:Italic a}",
                   "Correlation with position of queries and keys pooled along a, the direction "
                   "of their covariance with position (position_r).",
                   MapColours::to_one});
}

Figure head_map_rka(const Results& results) {
  return head_map(results, {"rotated", "r_k_a", "Position in keys along the drift of every head",
                            "|{/:Italic r}_k| along {/:Italic a}",
                            "|r_k_a|: correlation of keys with position along a, without its sign.",
                            MapColours::to_one, "", true});
}

Figure head_map_bias(const Results& results) {
  return head_map(results, {"rotated", "bias_strength", "Positional bias of every head", "bias",
                            "bias_strength = mu_q_a alpha_k: how much a key's score changes per "
                            "token of its position, for the mean query.",
                            MapColours::around_zero, "per token"});
}

Figure head_map_separation(const Results& results) {
  return head_map(results,
                  {"rotated", "separation_strength", "Separation of queries and keys of every head",
                   "separation",
                   "separation_strength: share of the squared distance between queries and keys "
                   "that lies along b.",
                   MapColours::to_one});
}

Figure head_map_plane_variance(const Results& results) {
  return head_map(results,
                  {"rotated", "plane_var_fraction", "Variance in the (a, b) plane of every head",
                   "variance in plane",
                   "plane_var_fraction: share of the pooled variance of queries and keys in the "
                   "plane of drift a and separation b.",
                   MapColours::to_largest});
}

Figure head_map_plasticity(const Results& results) {
  return head_map(
      results,
      {"head_metrics", "ap_profile_overall", "Attention plasticity of every head", "plasticity",
       "Attention plasticity of a head: the mean of its profile over query positions "
       "(ap_profile_overall).",
       MapColours::to_one});
}

Figure head_map_ap_drop(const Results& results) {
  return head_map(
      results,
      {"head_metrics", "ap_drop", "Loss of plasticity along the context of every head", "drop",
       "ap_drop: plasticity at the first fifth of query positions minus that at the "
       "last.",
       MapColours::around_zero});
}

Figure head_map_sink(const Results& results) {
  return head_map(results,
                  {"attention", "sink_0", "Attention to the first token of every head",
                   "mass on the first token",
                   "Attention that a query pays to the first token of its text (sink_0), mean over "
                   "every token.",
                   MapColours::to_one});
}

Figure head_map_previous(const Results& results) {
  return head_map(
      results, {"attention", "previous_token_head", "Previous-token score of every head",
                "previous-token score",
                "Share of attention on the token before (previous_token_head, as TransformerLens "
                "defines it), mean over texts.",
                MapColours::to_one});
}

Figure head_map_induction(const Results& results) {
  return head_map(
      results, {"attention", "induction_head", "Induction score of every head", "induction score",
                "Share of attention on tokens that followed an earlier copy of the present one "
                "(induction_head, as TransformerLens defines it), mean over texts.",
                MapColours::to_largest});
}

Figure head_map_duplicate(const Results& results) {
  return head_map(results,
                  {"attention", "duplicate_token_head", "Duplicate-token score of every head",
                   "duplicate-token score",
                   "Share of attention on earlier copies of the present token "
                   "(duplicate_token_head, as TransformerLens defines it), mean over texts.",
                   MapColours::to_largest});
}

Figure head_map_pattern(const Results& results) {
  return head_map(
      results, {"attention", "pattern", "Score of every head for the given pattern", "score",
                "Score of the pattern that was given to 'qkscope heads'.", MapColours::to_largest});
}

Figure head_map_entropy(const Results& results) {
  return head_map(results,
                  {"attention", "entropy", "Entropy of attention of every head", "entropy (nats)",
                   "Entropy of the attention that a query pays, mean over every token.",
                   MapColours::to_largest});
}

Figure head_map_distance(const Results& results) {
  return head_map(
      results,
      {"attention", "distance_mean", "How far every head looks back", "mean distance (tokens)",
       "Mean distance from a query to the keys it attends to, weighted by attention, "
       "mean over every token.",
       MapColours::to_largest});
}

Figure head_map_effective_keys(const Results& results) {
  return head_map(
      results,
      {"attention", "perplexity", "Effective number of keys of every head", "effective keys",
       "exp(entropy) of the attention that a query pays, mean over every token: over how "
       "many keys it is spread.",
       MapColours::to_largest});
}

}  // namespace qkscope
