#include "analysis/figures/figure.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <unistd.h>

#include "analysis/results/results_folder.h"
#include "base/core/error.h"
#include "base/core/log.h"
#include "base/core/text.h"
#include "base/io/child_process.h"
#include "base/io/folder.h"
#include "base/yaml/yaml_config.h"

namespace qkscope {

namespace embedded {
extern const char figures_yaml[];  // the file figures.yaml
// Contents of figure.gp. The scale factors in this file make all formats the same size, although
// the cairo terminals of gnuplot define a point as 1/96 inch.
extern const char figure_gp[];
}  // namespace embedded

namespace {

constexpr double kLegendRow = 0.15;  // inches

// Width in inches of a legend entry: mark, title without markup, and gap to the next entry.
double legend_entry_width(const LegendEntry& entry) {
  std::string plain = entry.title;
  for (const std::string mark : {"{/:Italic ", "{", "}", "_", "^"})
    for (auto at = plain.find(mark); at != std::string::npos; at = plain.find(mark))
      plain.erase(at, mark.size());
  return 0.26 + text_width_inches(plain, style::kSmall);
}

// `defaults`: YAML keys shared by all figures that use the same drawing function.
FigureKind figure_kind(const std::string& name, const Json& defaults, const Json& own_keys) {
#define NAMED(name) {#name, draw_##name},
  static const std::map<std::string, FigureDrawer*> kDrawers = {QKSCOPE_DRAWING_FUNCTIONS(NAMED)};
#undef NAMED
  const auto draw = own_keys.value("draw", name);
  Json keys = defaults.value(draw, Json::object());
  keys.update(own_keys);
  return {name, keys.value("tables", std::vector<std::string>()), keys.value("runs", ""),
          kDrawers.at(draw), keys};
}

void add_geometry_heatmaps(const Json& defaults, std::vector<FigureKind>& kinds) {
  for (const auto& column : geometry_columns()) {
    if (column.is_null) continue;
    std::string words = column.name;
    std::ranges::replace(words, '_', ' ');
    kinds.push_back(figure_kind("head_map_" + column.name, defaults,
                                {{"draw", "heatmap_of_heads"},
                                 {"tables", {"geometry"}},
                                 {"title", column.name + " of every head"},
                                 {"caption", column.meaning + "."},
                                 {"column", column.name},
                                 {"label", words},
                                 {"scale", column.scale},
                                 {"question", column.group}}));
  }
}

// Runs the gnuplot that is installed with the package or, if there is none, the one on the PATH.
ProcessResult spawn_gnuplot(std::vector<std::string> arguments, const std::string& folder = "") {
  std::string program = "gnuplot";
  for (const auto& helpers : helper_program_folders())
    if (::access((helpers + "/gnuplot").c_str(), X_OK) == 0) {
      program = helpers + "/gnuplot";
      break;
    }
  arguments.insert(arguments.begin(), program);
  auto result = run_process(arguments, folder);
  if (!result.found)
    throw_failure(
        "gnuplot is not installed (no 'gnuplot' on the PATH), and it draws the figures; on Debian "
        "and Ubuntu: apt-get install gnuplot-nox fonts-liberation");
  return result;
}

}  // namespace

std::string replace_control_characters(std::string_view text) {
  std::string result = replace_invalid_utf8(text);
  for (char& c : result)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  return result;
}

std::string escape_markup(std::string_view text) {
  std::string result;
  for (const char c : replace_control_characters(text)) {
    if (std::string_view("\\{}_^@&~").find(c) != std::string_view::npos) result += '\\';
    if (c == '\'') result += '\'';
    result += c;
  }
  return result;
}

std::string gnuplot_literal(const std::string& text) {
  return "'" + escape_markup(text) + "'";
}

std::string shorten_text(std::string_view text, std::size_t characters) {
  std::string whole = replace_control_characters(text);
  const auto count = utf8::count_characters(whole);
  if (count <= characters) return whole;
  const auto head = (characters - 1) / 2;
  const auto tail = characters - 1 - head;
  std::string result;
  std::size_t index = 0;
  for (std::size_t at = 0; at < whole.size(); ++index) {
    const auto size = utf8::character_size(whole[at]);
    if (index == head) result += "…";
    if (index < head || index >= count - tail) result += whole.substr(at, size);
    at += size;
  }
  return result;
}

double nice_tick_step(double range, int wanted) {
  if (!(range > 0)) return 1;
  const double rough = range / wanted;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= 0.99 * rough) return factor * power;
  return 10 * power;
}

double integer_tick_step(double range, int wanted) {
  return std::max(1.0, nice_tick_step(range, wanted));
}

bool is_multiple_of_thousand(double step) {
  return std::fmod(step, 1000) == 0;
}

std::string token_tick_commands(const char* axis, double step, bool thousands) {
  return fmt::format("set {0}tics {1}\nset format {0} '{2}'\n", axis, step,
                     thousands ? "%.0s%c" : "%.0f");
}

double text_width_inches(std::string_view text, double points) {
  return static_cast<double>(utf8::count_characters(text)) * points * 0.56 / 72;
}

std::string gnuplot_palette_command(std::span<const char* const> colours) {
  std::string stops;
  for (std::size_t i = 0; i < colours.size(); ++i)
    stops += fmt::format("{}{} '{}'", i > 0 ? ", " : "", i, colours[i]);
  return fmt::format("set palette defined ({})\n", stops);
}

std::string margin_commands(double left, double right, double bottom, double top) {
  return fmt::format(
      "set lmargin at screen {:.4f}/width\nset rmargin at screen {:.4f}/width\n"
      "set bmargin at screen {:.4f}/height\nset tmargin at screen {:.4f}/height\n",
      left, right, bottom, top);
}

std::string heatmap_plot_clause(int x, int y, int value) {
  return fmt::format(
      "  data using {0}:{1}:(${0} - 0.5):(${0} + 0.5):(${1} - 0.5):(${1} + 0.5):{2} with "
      "boxxyerror fillstyle solid noborder linecolor palette",
      x, y, value);
}

std::vector<LegendEntry> rope_nope_legend_entries() {
  return {{"RoPE layers", style::kRope, style::kCircle},
          {"NoPE layers", style::kNope, style::kDiamond}};
}

LegendEntry family_legend_entry(std::size_t index, const std::string& title) {
  return {title, style::kFamilies[index % std::size(style::kFamilies)],
          style::kFamilyPoints[index % std::size(style::kFamilyPoints)]};
}

Legend::Legend(const std::vector<LegendEntry>& entries, double figure_width)
    : figure_width_(figure_width) {
  for (const auto& entry : entries) {
    const double width = legend_entry_width(entry);
    if (rows_.empty() || rows_.back().width + width > figure_width_ - 0.1) rows_.emplace_back();
    rows_.back().width += width;
    rows_.back().entries.push_back(entry);
  }
}

double Legend::height_inches() const {
  return rows_.empty() ? 0 : 0.08 + kLegendRow * static_cast<double>(rows_.size());
}

std::string Legend::label_commands(double bottom) const {
  std::string text;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    double x = 0.5 * (figure_width_ - rows_[i].width) + 0.08;
    const double y = bottom + 0.11 + kLegendRow * static_cast<double>(rows_.size() - 1 - i);
    for (const auto& entry : rows_[i].entries) {
      text += fmt::format(
          "set label '' at screen {0:.4f}/width, screen {1:.4f}/height point pt {3} ps 0.6*mark lc "
          "rgb '{4}'\nset label '{5}' at screen {2:.4f}/width, screen {1:.4f}/height font ',{6}'\n",
          x, y, x + 0.08, entry.point_type, entry.colour, entry.title, style::kSmall);
      x += legend_entry_width(entry);
    }
  }
  return text;
}

void place_plot_above_legend(Figure& figure, const Legend& legend) {
  figure.height = style::kHeight + legend.height_inches();
  figure.script = margin_commands(0.55, style::kColumn - 0.1, 0.45 + legend.height_inches(),
                                  figure.height - 0.1) +
                  legend.label_commands();
}

PanelGrid::PanelGridOptions grid_options(const FigureKind& kind, std::size_t count) {
  auto options = kind.keys.at("grid").get<PanelGrid::PanelGridOptions>();
  options.count = count;
  return options;
}

PanelGrid::PanelGrid(PanelGridOptions options)
    : options_(std::move(options)),
      count_(static_cast<int>(options_.count)),
      columns_(std::min(options_.columns, count_)),
      rows_((count_ + columns_ - 1) / columns_) {
  if (count_ == 1) options_.aspect = std::min(options_.aspect, 0.85);
  if (options_.x_label.empty()) bottom_ = options_.own_ranges ? 0.24 : 0.1;
  if (options_.own_ranges) {
    gap_x_ = 0.32;
    gap_y_ = 0.4;
  }
  constexpr double kWidest = 2.2;
  const double available = columns_ == 1 ? style::kColumn : style::kPage;
  panel_width_ = (available - options_.left - options_.right - gap_x_ * (columns_ - 1)) / columns_;
  if (columns_ > 1) panel_width_ = std::min(panel_width_, kWidest);
  width_ = options_.left + options_.right + columns_ * panel_width_ + gap_x_ * (columns_ - 1);
  height_ = bottom_ + options_.top + rows_ * panel_width_ * options_.aspect + gap_y_ * (rows_ - 1);
}

std::string PanelGrid::legend_commands(const std::vector<LegendEntry>& entries) const {
  const Legend legend(entries, width_);
  return legend.label_commands(height_ - legend.height_inches());
}

void PanelGrid::draw(Figure& figure, const std::string& settings,
                     const std::function<Panel(std::size_t i)>& panel) const {
  figure.width = width_;
  figure.height = height_;
  figure.script =
      options_.functions +
      fmt::format(
          "set multiplot layout {},{} margins {:.4f},{:.4f},{:.4f},{:.4f} spacing {:.4f},{:.4f}\n",
          rows_, columns_, options_.left / width_, 1 - options_.right / width_, bottom_ / height_,
          1 - options_.top / height_, gap_x_ / width_, gap_y_ / height_) +
      fmt::format("set label 1001 '{}' at screen {:.4f}, screen {:.4f} center\n", options_.x_label,
                  0.5 * (1 + (options_.left - options_.right) / width_), 0.11 / height_) +
      fmt::format("set label 1002 '{}' at screen {:.4f}, screen {:.4f} center rotate\n",
                  options_.y_label, 0.1 / width_, 0.5 * (1 + (bottom_ - options_.top) / height_)) +
      fmt::format("set tics font ',{}'\nset xtics offset 0, 0.5\nset ytics offset 0.4, 0\n",
                  style::kTiny) +
      settings;
  for (int i = 0; i < count_; ++i) {
    const auto [title, commands] = panel(static_cast<std::size_t>(i));
    if (i == 1) figure.script += "unset label\n";  // panel 0 draws labels outside the panels
    figure.script +=
        fmt::format("set title {} font ',{}' offset 0, -0.7\n",
                    gnuplot_literal(shorten_text(title, options_.title_characters)), style::kSmall);
    if (!options_.own_ranges)
      figure.script +=
          fmt::format("set format x '{}'\nset format y '{}'\n", i + columns_ >= count_ ? "%h" : "",
                      i % columns_ == 0 ? options_.y_format : "");
    figure.script += commands;
  }
  figure.script += "unset multiplot\n";
}

TooltipArea PanelGrid::panel_tooltip_area(std::size_t i) const {
  const int place = static_cast<int>(i), row = place / columns_;
  const double left = options_.left + (place % columns_) * (panel_width_ + gap_x_);
  const double tall = panel_width_ * options_.aspect;
  const double top = options_.top + row * (tall + gap_y_);
  return {left / width_, top / height_, (left + panel_width_) / width_, (top + tall) / height_, ""};
}

const std::vector<FigureKind>& figure_kinds() {
  static const std::vector<FigureKind> kKinds = [] {
    const auto document = parse_yaml(embedded::figures_yaml, "figures.yaml");
    Json defaults = Json::object();
    std::vector<FigureKind> kinds;
    for (const auto& entry : document.root)
      if (const auto name = entry.first.as<std::string>(); name == "defaults")
        defaults = yaml_to_json(entry.second);
      else if (name == "geometry_columns")
        add_geometry_heatmaps(defaults, kinds);
      else
        kinds.push_back(figure_kind(name, defaults, yaml_to_json(entry.second)));
    return kinds;
  }();
  return kKinds;
}

void require_gnuplot() {
  const int status = spawn_gnuplot({"--version"}).status;
  if (status != 0)
    throw_failure("'gnuplot --version' ends with status {}; is it installed?", status);
}

std::string gnuplot_script(const Figure& figure, const std::vector<std::string>& formats) {
  return fmt::format(fmt::runtime(embedded::figure_gp), fmt::arg("name", figure.name),
                     fmt::arg("formats", fmt::join(formats, " ")), fmt::arg("width", figure.width),
                     fmt::arg("height", figure.height), fmt::arg("font", style::kFont),
                     fmt::arg("size", style::kFontSize), fmt::arg("dpi", style::kDotsPerInch),
                     fmt::arg("ink", style::kInk), fmt::arg("hair", style::kHair),
                     fmt::arg("small", style::kSmall), fmt::arg("script", figure.script));
}

void run_gnuplot(const std::string& folder, const std::string& name) {
  // --default-settings ignores the user's start-up files, which could change the figures.
  const auto result = spawn_gnuplot({"--default-settings", name + ".gp"}, folder);
  if (result.status != 0) throw_failure("gnuplot could not draw {}:\n{}", name, result.err);
  if (!result.err.empty()) log::debug("gnuplot on {}:\n{}", name, result.err);
}

}  // namespace qkscope
