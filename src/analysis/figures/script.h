// Pieces of gnuplot scripts: text, numbers, palettes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace qkscope {

// A gnuplot string that shows exactly this text: nothing in it is a command or markup. Control
// characters become spaces.
std::string quoted(const std::string& text);

// The same text as part of a string in single quotes that may hold other markup.
std::string escaped_markup(std::string_view text);

// At most `characters`, the middle left out: ends of names differ.
std::string shortened(std::string_view text, std::size_t characters);

// The same text without control characters, for cells of a CSV that gnuplot reads line by line.
std::string one_line(std::string_view text);

// The step 1, 2 or 5 times a power of ten that makes about `wanted` steps of `range`.
double round_step(double range, int wanted);

// `set xtics` (axis "x") with about `wanted` steps over positions up to `last`, in thousands
// ("50k") where every step is a whole number of them.
std::string token_tics(const char* axis, double last, int wanted);

// Rough inches of a line of text in this size (points).
double text_width(std::string_view text, double points);

// `set palette` from colours at even steps.
std::string palette(const std::vector<std::string>& colours);

// `set ?margin` that put the plot at these inches from the left and lower edge of the figure.
struct PlotBox {
  double left, right, bottom, top;
};
std::string margins(const PlotBox& box);

// Unit cells around (x, y), coloured by a value: columns of the CSV.
std::string plot_unit_cells(int x, int y, int value);

}  // namespace qkscope
