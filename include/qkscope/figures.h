// Draws figures from result tables and writes a report with the figures and the data of all heads.
#pragma once

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "qkscope/version.h"

namespace qkscope {

// Options of draw_figures().
struct DrawOptions {
  std::string results;  // folder of an analysis or a sweep
  std::string out;      // output folder, created if missing
  std::string only;     // name of one figure; empty: all figures and the report
  std::vector<std::string> formats = {"svg", "png", "pdf"};
  bool report = true;  // also write report.html
  bool quiet = false;  // no progress messages
  bool again = true;   // false: skip drawing if the output is complete and up to date
  std::array<int, 2> components = {0, 1};  // principal components of qk_collage and the report
  std::string head = "";    // "LAYER.HEAD" of head_planes; empty: the first head stored
  std::string scores = "";  // CSV file of benchmark scores for ap_drop_vs_score; empty: none
  // Show only heads of this attention kind ("full", "sliding:512"); empty: all heads. Tables
  // without a column `attention` are not filtered.
  std::string attention = "";
};

// Result of draw_figures().
struct Drawn {
  std::vector<std::string> figures;                           // names of the figures drawn
  std::vector<std::pair<std::string, std::string>> left_out;  // name, reason
  std::vector<std::string> of_several;  // figures that compare runs, skipped for a single run
  bool up_to_date = false;              // the output was up to date and nothing was drawn
  std::string report;                   // path of report.html; empty if no report was requested
};

// Draws every figure that the results have data for. Results of one run get head maps instead of
// figures that compare runs. Writes NAME.svg, NAME.png, NAME.pdf, NAME.csv (the data), NAME.gp (the
// script) and NAME.txt (the caption) for each figure; files appear only when complete. Throws if
// gnuplot is not installed or the results cannot be read.
QKSCOPE_API Drawn draw_figures(const DrawOptions& options);

// Options of write_report().
struct ReportOptions {
  std::string results;              // folder of an analysis or a sweep
  std::string compare = "";         // second folder, shown beside the first; empty: no comparison
  std::string out = "report.html";  // file to write
  std::array<int, 2> components = {0, 1};  // principal components of the points of a head
  std::string attention = "";              // as in DrawOptions
  bool quiet = false;                      // no progress messages
};

// Writes the report alone: one HTML file with the figures of the results and a table of all heads.
// A comparison shows both values of every head and their difference. Throws a bad-input error if
// the two models have different layers or heads, or if either folder has several runs.
QKSCOPE_API Drawn write_report(const ReportOptions& options);

// Returns the names of all figures, in the order of the report.
QKSCOPE_API std::vector<std::string> figure_names();

}  // namespace qkscope
