// Draws every figure that results have data for.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace qkscope {

struct DrawOptions {
  std::string results;  // folder of an analysis or a sweep
  std::string out;      // made if missing
  std::string only;     // the name of one figure; empty: all, and the report
  std::vector<std::string> formats = {"svg", "png", "pdf"};
  bool report = true;
  bool quiet = false;
};

struct Drawn {
  std::vector<std::string> figures;
  std::vector<std::pair<std::string, std::string>> left_out;  // name, why
  std::string report;  // path of report.html; empty when it was not asked for
};

// For each figure NAME: NAME.svg, .png, .pdf, NAME.csv (what was drawn), NAME.gp (the script) and
// NAME.txt (the caption). Files appear when they are whole.
Drawn draw_figures(const DrawOptions& options);

}  // namespace qkscope
