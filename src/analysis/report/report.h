// report.html: one page with everything, that needs no network.
#pragma once

#include <string>
#include <vector>

#include "analysis/figures/figure.h"
#include "analysis/figures/results.h"
#include "qkscope/figures.h"

namespace qkscope {

struct NamedFigure {
  std::string name;
  Figure figure;
};

struct ReportInput {
  const Results& results;
  const std::vector<NamedFigure>& figures;
  const Drawn& drawn;    // and what was left out
  std::string pictures;  // the folder with NAME.svg and NAME.png of every figure
};

std::string report_page(const ReportInput& input);

}  // namespace qkscope
