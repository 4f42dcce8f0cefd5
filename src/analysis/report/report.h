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

// Returns the HTML of the report. `pictures` is a folder with NAME.svg and NAME.png of every
// figure.
std::string report_page(const AnalysisResults& results, const std::vector<NamedFigure>& figures,
                        const Drawn& drawn, const std::string& pictures);

// Data of all heads that the JavaScript of the page reads.
struct ReportHeadData {
  // Columns are little-endian arrays in base64 with one entry per head:
  // {"count", "run", "layer", "head", "ropes", "rope", "attentions", "attention", "classes",
  //  "class", "class_axis" (null in older results), "measures": [{"name", "data"}],
  //  "profile": {"start", "position", "ap", "ap_free", "error"},
  //  "scatter": {"start", "queries", "low", "high", "last_positions", "components", and "tokens"
  //  and "token" in results with token texts}}.
  Json json;
  std::string points;  // points of all heads in base64, see PackedPoints
};

ReportHeadData collect_report_head_data(const AnalysisResults& results);

}  // namespace qkscope
