// Runs gnuplot, which draws the figures.
#pragma once

#include <string>
#include <vector>

#include "analysis/figures/figure.h"

namespace qkscope {

// Fails with what to install where there is no gnuplot.
void require_gnuplot();

// NAME.gp: size, terminals and style, then the figure's own commands. Draws NAME.FORMAT for each of
// `formats` (svg, png, pdf) in its own folder.
std::string gnuplot_script(const std::string& name, const Figure& figure,
                           const std::vector<std::string>& formats);

// `gnuplot NAME.gp` in `folder`. Fails with gnuplot's own words.
void run_gnuplot(const std::string& folder, const std::string& name);

}  // namespace qkscope
