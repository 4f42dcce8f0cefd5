// report.html: one page with everything, that needs no network.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "figures/figure.h"
#include "figures/results.h"

namespace qkscope {

struct NamedFigure {
  std::string name;
  Figure figure;
};

struct ReportInput {
  const Results& results;
  const std::vector<NamedFigure>& figures;
  const std::vector<std::pair<std::string, std::string>>& left_out;  // name, why
  std::string pictures;  // the folder with NAME.svg and NAME.png of every figure
};

std::string report_page(const ReportInput& input);

}  // namespace qkscope
