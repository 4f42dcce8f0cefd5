// Heat maps of one model: one cell per head, layers from left to right. kMaps lists maps of numeric
// columns, kClassMaps maps of head classes; every column of the table `geometry` has a map.
#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "analysis/figures/run_plots.h"
#include "analysis/figures/style.h"
#include "analysis/results/geometry_columns.h"

namespace qkscope {
namespace {

// One column of a result table as a head map.
struct MapMeasure {
  const char* name;  // the figure is head_map_NAME
  const char* table;
  const char* column;
  const char* title;
  const char* label;  // of the colour bar, gnuplot markup
  const char* what;   // first sentence of the caption
  HeadMapScale scale;
  const char* unit = "";
  bool absolute = false;
  const char* question = "";  // of a column of the geometry
};

constexpr MapMeasure kMaps[] = {
    {"rq", "qk", "r_q", "Position in the queries of every head", "{/:Italic r}_q",
     "Correlation of queries with position on the first component (r_q).", HeadMapScale::to_one},
    {"rk", "qk", "r_k", "Position in the keys of every head", "{/:Italic r}_k",
     "Correlation of keys with position on the first component (r_k), with its sign; the component "
     "points where r_q is positive.",
     HeadMapScale::signed_to_one},
    {"pc0_variance", "qk", "explained_variance", "Variance on the first component of every head",
     "share on PC0",
     "Share of the variance of a head's pooled queries and keys on its first component.",
     HeadMapScale::to_largest},
    {"rq_axis", "taxonomy", "r_q_axis", "Position in queries along the held-out drift axis",
     "|{/:Italic r}_q| along the axis",
     "|r_q_axis|: correlation of queries with position along the drift axis fitted on other texts.",
     HeadMapScale::to_one, "", true},
    {"rk_axis", "taxonomy", "r_k_axis", "Position in keys along the held-out drift axis",
     "|{/:Italic r}_k| along the axis",
     "|r_k_axis|: correlation of keys with position along the drift axis fitted on other texts.",
     HeadMapScale::to_one, "", true},
    {"position_r", "rotated", "position_r", "Position along the drift of every head",
     "|{/:Italic r}| along {/:Italic a}",
     "Correlation with position of queries and keys pooled along a, the direction of their "
     "covariance with position (position_r).",
     HeadMapScale::to_one},
    {"rka", "rotated", "r_k_a", "Position in keys along the drift of every head",
     "|{/:Italic r}_k| along {/:Italic a}",
     "|r_k_a|: correlation of keys with position along a, without its sign.", HeadMapScale::to_one,
     "", true},
    {"bias", "rotated", "bias_strength", "Positional bias of every head", "bias",
     "bias_strength = mu_q_a alpha_k: how much a key's score changes per token of its position, "
     "for the mean query.",
     HeadMapScale::around_zero, "per token"},
    {"separation", "rotated", "separation_strength", "Separation of queries and keys of every head",
     "separation",
     "separation_strength: share of the squared distance between queries and keys that lies along "
     "b.",
     HeadMapScale::to_one},
    {"plane_variance", "rotated", "plane_var_fraction",
     "Variance in the (a, b) plane of every head", "variance in plane",
     "plane_var_fraction: share of the pooled variance of queries and keys in the plane of drift a "
     "and separation b.",
     HeadMapScale::to_largest},
    {"plasticity", "head_metrics", "ap_profile_overall", "Attention plasticity of every head",
     "plasticity",
     "Attention plasticity of a head: the mean of its profile over query positions "
     "(ap_profile_overall).",
     HeadMapScale::to_one},
    {"ap_drop", "head_metrics", "ap_drop", "Loss of plasticity along the context of every head",
     "drop", "ap_drop: plasticity at the first fifth of query positions minus that at the last.",
     HeadMapScale::around_zero},
    {"plasticity_free", "head_metrics", "ap_free_overall", "Model-free plasticity of every head",
     "model-free plasticity",
     "Attention plasticity counted from the queries themselves, without a model of their "
     "distribution: the mean of the head's profile (ap_free_overall).",
     HeadMapScale::to_one},
    {"sink", "attention", "sink_0", "Attention to the first token of every head",
     "mass on the first token",
     "Attention that a query pays to the first token of its text (sink_0), mean over every token.",
     HeadMapScale::to_one},
    {"previous", "attention", "previous_token_head", "Previous-token score of every head",
     "previous-token score",
     "Share of attention on the token before (previous_token_head, as TransformerLens defines it), "
     "mean over texts.",
     HeadMapScale::to_one},
    {"induction", "attention", "induction_head", "Induction score of every head", "induction score",
     "Share of attention on tokens that followed an earlier copy of the present one "
     "(induction_head, as TransformerLens defines it), mean over texts.",
     HeadMapScale::to_largest},
    {"duplicate", "attention", "duplicate_token_head", "Duplicate-token score of every head",
     "duplicate-token score",
     "Share of attention on earlier copies of the present token (duplicate_token_head, as "
     "TransformerLens defines it), mean over texts.",
     HeadMapScale::to_largest},
    {"pattern", "attention", "pattern", "Score of every head for the given pattern", "score",
     "Score of the pattern that was given to 'qkscope heads'.", HeadMapScale::to_largest},
    {"entropy", "attention", "entropy", "Entropy of attention of every head", "entropy (nats)",
     "Entropy of the attention that a query pays, mean over every token.",
     HeadMapScale::to_largest},
    {"distance", "attention", "distance_mean", "How far every head looks back",
     "mean distance (tokens)",
     "Mean distance from a query to the keys it attends to, weighted by attention, mean over every "
     "token.",
     HeadMapScale::to_largest},
    {"effective_keys", "attention", "perplexity", "Effective number of keys of every head",
     "effective keys",
     "exp(entropy) of the attention that a query pays, mean over every token: over how many keys "
     "it is spread.",
     HeadMapScale::to_largest}};

struct ClassMap {
  const char* column;  // the figure is head_map_COLUMN
  const char* title;
  const char* basis;  // measures that the class is derived from
};
constexpr ClassMap kClassMaps[] = {
    {"class", "Class of every head", "r_q and |r_k| on its first component"},
    {"class_axis", "Class of every head along the held-out drift axis",
     "|r_q| and |r_k| along the drift axis fitted on other texts"}};

struct MapCell {
  std::int64_t layer;
  std::int64_t head;
  double value;
  bool nope;
  bool sliding;
};

MapCell map_cell(const ResultFrame& frame, std::size_t row, double value) {
  return {frame.nullable_integer_column("layer")[row], frame.head_column()[row], value,
          frame.is_nope(row), frame.attention_kind(row).starts_with("sliding")};
}

// Position of the map in the figure. Cells are square where the page is wide enough.
class MapLayout {
 public:
  MapLayout(const AnalysisResults& results, const std::vector<MapCell>& cells, double right,
            double below)
      : title_(gnuplot_literal(shorten_text(results.runs().front().title, 52))), right_(right) {
    bool full = false;
    for (const auto& cell : cells) {
      layers_ = std::max(layers_, cell.layer + 1);
      heads_ = std::max(heads_, cell.head + 1);
      if (cell.nope) nope_.insert(cell.layer);
      if (cell.sliding) sliding_.insert(cell.layer);
      full = full || !cell.sliding;
    }
    if (!full) sliding_.clear();  // all layers are sliding: no marks
    bottom_ = 0.32 + below;
    const double wide = style::kColumn - kLeft - right_;
    const double square = static_cast<double>(heads_) * wide / static_cast<double>(layers_);
    tall_ = std::clamp(square, 0.9, 2.4);
    top_ = kTitle + (nope_.empty() && sliding_.empty() ? 0.08 : 0.2);
  }

  double height() const { return bottom_ + tall_ + top_; }
  double plot_top() const { return bottom_ + tall_; }
  double plot_bottom() const { return bottom_; }

  std::string axes() const {
    std::string text = margin_commands(kLeft, style::kColumn - right_, bottom_, bottom_ + tall_);
    text += fmt::format(
        "unset grid\nset border 0\nset tics scale 0 font ',{}'\n"
        "set xrange [-0.5:{}]\nset yrange [-0.5:{}]\nset xtics {} offset 0, 0.4\n"
        "set ytics {} offset 0.4, 0\n",
        style::kSmall, static_cast<double>(layers_) - 0.5, static_cast<double>(heads_) - 0.5,
        integer_tick_step(static_cast<double>(layers_), 6),
        integer_tick_step(static_cast<double>(heads_), 6));
    text += fmt::format(
        "set label 'layer' at graph 0.5, screen {:.4f}/height center font ',{}'\n"
        "set label 'head' at screen 0.09/width, graph 0.5 center rotate font ',{}'\n"
        "set label {} at graph 0.5, screen {:.4f}/height center font ',{}'\n",
        bottom_ - 0.24, style::kLabel, style::kLabel, title_, height() - 0.09, style::kSmall);
    return text + layer_marks(nope_, "NoPE layers", 0, style::kDiamond, style::kNope) +
           layer_marks(sliding_, "sliding layers", 0.35, style::kSquare, style::kAccent);
  }

  HoverCell hover(const MapCell& cell, const std::string& text) const {
    const double wide = (style::kColumn - kLeft - right_) / static_cast<double>(layers_);
    const double tall = tall_ / static_cast<double>(heads_);
    const double left = kLeft + static_cast<double>(cell.layer) * wide;
    const double below = bottom_ + static_cast<double>(cell.head) * tall;
    return {left / style::kColumn,
            1 - (below + tall) / height(),
            (left + wide) / style::kColumn,
            1 - below / height(),
            fmt::format("layer {}, head {}: {}{}{}", cell.layer, cell.head, text,
                        cell.nope ? " (NoPE)" : "", cell.sliding ? " (sliding)" : ""),
            cell.layer,
            cell.head};
  }

 private:
  static constexpr double kLeft = 0.42;   // inches
  static constexpr double kTitle = 0.14;  // inches for the name of the model

  // Returns gnuplot commands that draw a marker above the column of each given layer, and the label
  // `name` at the fraction `x` of the map's width.
  std::string layer_marks(const std::set<std::int64_t>& layers, const char* name, double x,
                          int point_type, const char* colour) const {
    std::string text;
    for (const auto layer : layers)
      text += fmt::format(
          "set label '' at first {}, screen {:.4f}/height point pt {} ps 0.4*mark lc rgb '{}'\n",
          layer, plot_top() + 0.06, point_type, colour);
    if (layers.empty()) return text;
    return text +
           fmt::format("set label '{}' at graph {}, screen {:.4f}/height font ',{}' tc rgb '{}'\n",
                       name, x, plot_top() + 0.14, style::kPhase, colour);
  }

  std::string title_;
  double right_;
  double bottom_ = 0;
  double tall_ = 0;
  double top_ = 0;
  std::int64_t layers_ = 1;
  std::int64_t heads_ = 1;
  std::set<std::int64_t> nope_;
  std::set<std::int64_t> sliding_;
};

// Cells have a thin border, so that a pale head differs from a head that was not captured.
std::string plot_map_cells(const std::string& x, const std::string& colour) {
  return fmt::format(
      "data using ({}):2:($1 - 0.5):($1 + 0.5):($2 - 0.5):($2 + 0.5){} with boxxyerror fillstyle "
      "solid border lc rgb '#D8D8D8' lw 0.3",
      x, colour);
}

constexpr double kColourBar = 0.62;  // inches beside the map for the colour bar

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

struct MapColours {
  std::string script;   // range and palette
  std::string caption;  // sentence about the colours
};

// Returns the colour range of a head map. The gnuplot script multiplies values by `scale`.
MapColours map_colours(HeadMapScale kind, const std::vector<double>& values, double scale) {
  if (kind == HeadMapScale::to_one)
    return {gnuplot_palette_command(style::kCividis) + "set cbrange [0:1]\nset cbtics 0.25\n",
            "Colours run from 0 to 1."};
  if (kind == HeadMapScale::signed_to_one)
    return {gnuplot_palette_command(style::kAroundZero) + "set cbrange [-1:1]\nset cbtics 0.5\n",
            "Colours run from -1 (blue) over 0 (white) to 1 (red)."};
  if (kind == HeadMapScale::to_largest) {
    const double largest = std::ranges::max(values);
    const double top = largest > 0 ? largest : 1;
    return {gnuplot_palette_command(style::kCividis) +
                fmt::format("set cbrange [0:{}]\nset cbtics {}\n", top, nice_tick_step(top, 4)),
            "Colours run from 0 to the largest head."};
  }
  // Clip at the 98th percentile: a few outlying heads would leave all other heads white.
  const double far = quantile_of(absolute_values(values), 0.98) * scale;
  const double top = far > 0 ? far : 1;
  return {
      gnuplot_palette_command(style::kAroundZero) +
          fmt::format("set cbrange [{}:{}]\nset cbtics {}\n", -top, top, nice_tick_step(top, 2)),
      "White is 0, red above, blue below; the 2 % of heads farthest from 0 share the last "
      "colour."};
}

Figure head_map(const AnalysisResults& results, const MapMeasure& measure) {
  const ResultFrame& frame = results.frame(measure.table);
  if (!frame.has(measure.column))
    return empty_figure(fmt::format(
        "the {} do not have {}",
        std::string_view(measure.table) == "attention" ? "statistics" : "results", measure.column));
  const auto& column = frame.real_column(measure.column);
  std::vector<MapCell> cells;
  std::vector<double> values;
  for (std::size_t row = 0; row < frame.rows(); ++row) {
    if (std::isnan(column[row]) || !frame.is_first_component(row)) continue;
    values.push_back(measure.absolute ? std::fabs(column[row]) : column[row]);
    cells.push_back(map_cell(frame, row, values.back()));
  }
  if (cells.empty()) return {};
  const auto named = [&](const char* form) {
    return measure.absolute ? fmt::format(fmt::runtime(form), measure.column)
                            : std::string(measure.column);
  };
  const std::string unit = measure.unit;
  const auto scaled = unit.empty() ? AxisUnit() : choose_axis_unit({values}, unit);
  const MapLayout layout(results, cells, kColourBar, 0);
  Figure figure;
  figure.title = measure.title;
  figure.question = measure.question;
  figure.data = empty_table(
      fmt::format("integer layer, integer head, real {}, integer nope", named("abs_{}")));
  for (const auto& cell : cells) {
    figure.data.add({cell.layer, cell.head, cell.value, std::int64_t{cell.nope}});
    figure.hover.push_back(layout.hover(cell, fmt::format("{} {:.4g}{}", named("|{}|"), cell.value,
                                                          unit.empty() ? "" : " " + unit)));
  }
  const auto colours = map_colours(measure.scale, values, scaled.scale);
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
      measure.what, results.run_title(), colours.caption);
  return figure;
}

Figure class_map(const AnalysisResults& results, const ClassMap& map) {
  const ResultFrame& frame = results.frame("taxonomy");
  if (!frame.has(map.column))
    return empty_figure(fmt::format("the results do not have {}", map.column));
  const auto& classes = frame.text_column(map.column);
  std::vector<MapCell> cells;
  for (std::size_t row = 0; row < frame.rows(); ++row)
    for (std::size_t code = 0; code < std::size(style::kClasses); ++code)
      if (classes[row] == style::kClasses[code].name)
        cells.push_back(map_cell(frame, row, static_cast<double>(code)));
  std::vector<LegendEntry> entries;
  for (const auto& c : style::kClasses) entries.push_back({c.title, c.colour, style::kSquare});
  const Legend legend(entries, style::kColumn);
  const MapLayout layout(results, cells, 0.1, legend.height());
  Figure figure;
  figure.data = empty_table(
      fmt::format("integer layer, integer head, integer code, integer nope, text {}", map.column));
  for (const auto& cell : cells) {
    const auto& c = style::kClasses[static_cast<std::size_t>(cell.value)];
    figure.data.add({cell.layer, cell.head, static_cast<std::int64_t>(cell.value),
                     std::int64_t{cell.nope}, std::string(c.name)});
    figure.hover.push_back(layout.hover(cell, c.title));
  }
  figure.title = map.title;
  figure.height = layout.height();
  figure.script = layout.axes() + legend.label_commands() + "plot \\\n";
  for (std::size_t code = 0; code < std::size(style::kClasses); ++code)
    figure.script += "  " + plot_map_cells(fmt::format("$3 == {} ? $1 : NaN", code), "") +
                     fmt::format(" lc rgb '{}'{}\n", style::kClasses[code].colour,
                                 code + 1 < std::size(style::kClasses) ? ", \\" : "");
  figure.caption = fmt::format(
      "Class of every head by {} (bounds {}). One cell per head of '{}', layers from left to "
      "right; "
      "heads that were not captured, or have no class, stay blank.",
      map.basis, taxonomy_bounds_text(results), results.run_title());
  return figure;
}

FigureKind map_kind(const std::string& name, const MapMeasure& measure) {
  return {"head_map_" + name,
          {measure.table},
          [measure](const AnalysisResults& results) { return head_map(results, measure); },
          RunCountRequirement::one};
}

// Returns the head maps of the table "attention", or of all other tables.
std::vector<FigureKind> measure_maps(bool of_attention) {
  std::vector<FigureKind> kinds;
  for (const auto& measure : kMaps)
    if ((std::string_view(measure.table) == "attention") == of_attention)
      kinds.push_back(map_kind(measure.name, measure));
  return kinds;
}

}  // namespace

std::vector<FigureKind> geometry_head_map_kinds() {
  struct MapTexts {
    std::string title, label, what;
  };
  static const std::vector<MapTexts> kTexts = [] {
    std::vector<MapTexts> texts;
    for (const auto& column : geometry_columns()) {
      std::string words = column.name;
      std::ranges::replace(words, '_', ' ');
      texts.push_back({column.name + " of every head", words, column.meaning + "."});
    }
    return texts;
  }();
  std::vector<FigureKind> kinds;
  for (std::size_t i = 0; i < kTexts.size(); ++i) {
    const auto& column = geometry_columns()[i];
    const auto& texts = kTexts[i];
    if (!column.is_null)
      kinds.push_back(map_kind(
          column.name,
          {column.name.c_str(), "geometry", column.name.c_str(), texts.title.c_str(),
           texts.label.c_str(), texts.what.c_str(), column.scale, "", false, column.question}));
  }
  return kinds;
}

std::vector<FigureKind> head_map_kinds() {
  std::vector<FigureKind> kinds = measure_maps(false);
  for (std::size_t i = 0; i < std::size(kClassMaps); ++i)
    kinds.insert(kinds.begin() + static_cast<std::ptrdiff_t>(i),
                 {fmt::format("head_map_{}", kClassMaps[i].column),
                  {"taxonomy"},
                  [i](const AnalysisResults& results) { return class_map(results, kClassMaps[i]); },
                  RunCountRequirement::one});
  return kinds;
}

std::vector<FigureKind> attention_head_map_kinds() {
  return measure_maps(true);
}

}  // namespace qkscope
