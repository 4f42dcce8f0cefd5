#include "analysis/figures/figure.h"

#include <algorithm>
#include <map>

#include <unistd.h>

#include "analysis/results/geometry_columns.h"
#include "base/core/error.h"
#include "base/core/log.h"
#include "base/io/child_process.h"
#include "base/io/data_folder.h"
#include "base/yaml/yaml_config.h"

namespace qkscope {

namespace embedded {
extern const char figures_yaml[];  // the file figures.yaml
// Contents of figure.gp. The scale factors in this file make all formats the same size, although
// the cairo terminals of gnuplot define a point as 1/96 inch.
extern const char figure_gp[];
}  // namespace embedded

namespace {

#define NAMED(function) {#function, function},
const std::map<std::string, DrawFigure*> kDrawingFunctions = {QKSCOPE_DRAWING_FUNCTIONS(NAMED)};
#undef NAMED

// `defaults`: YAML keys shared by all figures that use the same drawing function.
FigureKind figure_kind(const std::string& name, const Json& defaults, const Json& own_keys) {
  const auto draw = own_keys.value("draw", name);
  Json keys = defaults.value(draw, Json::object());
  keys.update(own_keys);
  const auto runs = keys.value("runs", "any");
  return {name, keys.value("tables", std::vector<std::string>()),
          runs == "one"       ? RunCountRequirement::one
          : runs == "several" ? RunCountRequirement::several
                              : RunCountRequirement::any,
          kDrawingFunctions.at(draw), keys};
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
                                 {"question", column.question}}));
  }
}

// Runs the gnuplot that is installed with the package or, if there is none, the one on the PATH.
ChildResult run_program(std::vector<std::string> arguments, const std::string& folder = "") {
  std::string program = "gnuplot";
  for (const auto& helpers : helper_program_folders())
    if (::access((helpers + "/gnuplot").c_str(), X_OK) == 0) {
      program = helpers + "/gnuplot";
      break;
    }
  arguments.insert(arguments.begin(), program);
  auto result = run_child(arguments, folder);
  if (!result.found)
    failure(
        "gnuplot is not installed (no 'gnuplot' on the PATH), and it draws the figures; on Debian "
        "and Ubuntu: apt-get install gnuplot-nox fonts-liberation");
  return result;
}

}  // namespace

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
  const int status = run_program({"--version"}).status;
  if (status != 0) failure("'gnuplot --version' ends with status {}; is it installed?", status);
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
  const auto result = run_program({"--default-settings", name + ".gp"}, folder);
  if (result.status != 0) failure("gnuplot could not draw {}:\n{}", name, result.err);
  if (!result.err.empty()) log::debug("gnuplot on {}:\n{}", name, result.err);
}

}  // namespace qkscope
