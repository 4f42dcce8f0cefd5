// Writes gnuplot scripts and runs gnuplot.
#pragma once

#include <string>
#include <vector>

#include "analysis/figures/figure.h"

namespace qkscope {

// Throws a failure that names the package to install if gnuplot cannot be run.
void require_gnuplot();

// Returns the content of NAME.gp: size, terminals, style and the commands of the figure. The script
// writes NAME.FORMAT for each of `formats` (svg, png, pdf) into the current folder.
std::string gnuplot_script(const std::string& name, const Figure& figure,
                           const std::vector<std::string>& formats);

// Runs `gnuplot NAME.gp` in `folder`. Throws a failure with gnuplot's own message.
void run_gnuplot(const std::string& folder, const std::string& name);

}  // namespace qkscope
