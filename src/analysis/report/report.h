// report.html: one self-contained page that works without a network.
#pragma once

#include <string>
#include <vector>

#include "analysis/figures/figure.h"
#include "analysis/figures/results.h"
#include "base/io/json.h"
#include "qkscope/figures.h"

namespace qkscope {

struct NamedFigure {
  std::string name;
  Figure figure;
};

struct ReportInput {
  const Results& results;
  const std::vector<NamedFigure>& figures;
  const Drawn& drawn;
  std::string pictures;  // folder with NAME.svg and NAME.png of every figure
};

// Returns the HTML text of the report.
std::string report_page(const ReportInput& input);

// Data of all heads for the page.
struct ReportHeads {
  // Columns are little-endian arrays in base64 with one entry per head:
  // {"count", "run", "layer", "head", "ropes", "rope", "attentions", "attention", "classes",
  //  "class", "class_axis" (null in older results), "measures": [{"name", "data"}],
  //  "profile": {"start", "position", "ap", "ap_free", "error"},
  //  "scatter": {"start", "queries", "low", "high", "last_positions", "components", and "tokens"
  //  and "token" in results with token texts}}.
  Json json;
  std::string points;  // points of all heads in base64, see PackedPoints
};

ReportHeads report_heads(const Results& results);

}  // namespace qkscope
