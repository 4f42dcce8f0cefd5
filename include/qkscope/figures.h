// Draws figures of results, and the report that shows them together with every head.
#pragma once

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "qkscope/version.h"

namespace qkscope {

struct DrawOptions {
  std::string results;  // folder of an analysis or a sweep
  std::string out;      // made if missing
  std::string only;     // the name of one figure; empty: all, and the report
  std::vector<std::string> formats = {"svg", "png", "pdf"};
  bool report = true;  // also write report.html
  bool quiet = false;  // no progress
  bool again = true;   // false: nothing is drawn where the same was drawn before, in full
  std::array<int, 2> components = {0, 1};  // that qk_collage and the report show
  std::string head = "";    // "LAYER.HEAD" that head_planes shows; empty: the first one kept
  std::string scores = "";  // CSV of benchmark scores for ap_drop_vs_score; empty: none
};

struct Drawn {
  std::vector<std::string> figures;                           // names
  std::vector<std::pair<std::string, std::string>> left_out;  // name, why
  std::vector<std::string> of_several;  // those that compare runs, where there is only one
  bool as_before = false;               // nothing was drawn: it is all there, from the same results
  std::string report;                   // path of report.html; empty when it was not asked for
};

// Draws every figure that the results have data for; gnuplot must be installed. Results of one run
// get maps of their heads instead of figures that compare runs. For each figure
// NAME: NAME.svg, .png, .pdf, NAME.csv (what was drawn), NAME.gp (the script) and NAME.txt (the
// caption). Files appear when they are whole.
QKSCOPE_API Drawn draw_figures(const DrawOptions& options);

// Every figure there is, in the order of the report.
QKSCOPE_API std::vector<std::string> figure_names();

}  // namespace qkscope
