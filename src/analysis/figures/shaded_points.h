// Points of queries and keys, shaded by position.
#pragma once

#include <cstddef>
#include <string>

namespace qkscope {

// gnuplot functions query(t) and key(t): the colour at the share t of the text.
std::string shade_functions();

// "queries" and "keys" above a figure of this height, each with five marks from early to late.
std::string shade_legend(double height);

// Keys, then queries, of one panel. Columns of the CSV: panel, key (0: query), shade, x, y.
std::string plot_shaded_points(std::size_t panel, double size);

}  // namespace qkscope
