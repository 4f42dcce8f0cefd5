// One figure: its data, its caption and the gnuplot script that draws it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "qkscope/tables.h"

namespace qkscope {

// A rectangle of a picture that shows a tooltip in the report. Edges are fractions of the picture's
// width and height, measured from the left and from the top.
struct HoverCell {
  double left = 0;
  double top = 0;
  double right = 0;
  double bottom = 0;
  std::string text;
  std::int64_t layer = -1;  // a click opens this head; -1: not a head
  std::int64_t head = -1;
};

struct Figure {
  std::string title;
  std::string caption;  // what the figure shows and how it was computed, in sentences
  double width = 0;     // inches
  double height = 0;
  Table data;           // NAME.csv: numeric columns first, then text columns
  std::string script;   // gnuplot commands; the gnuplot variable `data` is the CSV's file name
  std::string missing;  // why the figure cannot be drawn; empty if it can
  std::vector<HoverCell> hover;
};

// Returns a figure that the results have no data for. A figure whose `data` has no rows is reported
// as "none of its numbers exists" without this function.
inline Figure nothing_to_draw(std::string why) {
  Figure figure;
  figure.missing = std::move(why);
  return figure;
}

}  // namespace qkscope
