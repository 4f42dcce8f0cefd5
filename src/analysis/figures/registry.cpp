#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "analysis/figures/figure.h"
#include "analysis/results/geometry_columns.h"
#include "base/yaml/yaml_config.h"

namespace qkscope {

namespace embedded {
extern const char figures_yaml[];  // the file figures.yaml
}

namespace {

// Drawing functions by name.
#define NAMED(function) {#function, function},
const std::map<std::string, DrawFigure*> kDrawingFunctions = {QKSCOPE_DRAWING_FUNCTIONS(NAMED)};
#undef NAMED

// `defaults` holds the keys that all figures of a drawing function share.
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

// The head map of every column of the geometry.
void add_geometry_head_maps(const Json& defaults, std::vector<FigureKind>& kinds) {
  for (const auto& column : geometry_columns()) {
    if (column.is_null) continue;
    std::string words = column.name;
    std::ranges::replace(words, '_', ' ');
    kinds.push_back(figure_kind("head_map_" + column.name, defaults,
                                {{"draw", "head_map"},
                                 {"tables", {"geometry"}},
                                 {"title", column.name + " of every head"},
                                 {"caption", column.meaning + "."},
                                 {"column", column.name},
                                 {"label", words},
                                 {"scale", column.scale},
                                 {"question", column.question}}));
  }
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
        add_geometry_head_maps(defaults, kinds);
      else
        kinds.push_back(figure_kind(name, defaults, yaml_to_json(entry.second)));
    return kinds;
  }();
  return kKinds;
}

}  // namespace qkscope
