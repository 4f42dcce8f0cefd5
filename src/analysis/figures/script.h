// Fragments of gnuplot scripts: quoted text, ticks, palettes, cells and shaded points.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace qkscope {

// Returns a gnuplot string literal that shows exactly this text: markup is escaped, control
// characters become spaces.
std::string quoted(const std::string& text);

// Returns the text with gnuplot markup escaped, for use inside a single-quoted string.
std::string escaped_markup(std::string_view text);

// Returns at most `characters` of the text. The middle is replaced by "…", because names of runs
// differ at their ends.
std::string shortened(std::string_view text, std::size_t characters);

// Returns the text with control characters replaced by spaces: gnuplot reads CSV line by line.
std::string one_line(std::string_view text);

// Returns the step of 1, 2 or 5 times a power of ten that divides `range` into about `wanted`
// steps.
double round_step(double range, int wanted);

// Step between ticks of an axis of positions, at least one token.
double token_step(double range, int wanted);
// `set xtics` for the axis "x". With `thousands` the numbers read 50k, else 50000.
std::string token_tics(const char* axis, double step, bool thousands);
// Returns true if numbers at this step can be written in thousands ("50k").
bool is_in_thousands(double step);

// Estimated width in inches of a line of text at this font size in points.
double text_width(std::string_view text, double points);

// `set palette` with the colours at even steps.
std::string palette(const std::vector<std::string>& colours);

// Plot area in inches from the left and lower edge of the figure.
struct PlotBox {
  double left, right, bottom, top;
};
std::string margins(const PlotBox& box);

// Plots unit squares centred at columns `x` and `y` of the CSV, coloured by the column `value`.
std::string plot_unit_cells(int x, int y, int value);

// Defines the gnuplot functions query(t) and key(t): the colour at the fraction t of the text.
std::string shade_functions();

// Legend for shaded points above a figure of this height in inches.
std::string shade_legend(double height);

// Plots the keys, then the queries of one panel as shaded points. CSV columns: panel, key (0 for
// queries), shade, x, y.
std::string plot_shaded_points(std::size_t panel, double size);

}  // namespace qkscope
