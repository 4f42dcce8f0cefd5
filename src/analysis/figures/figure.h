// One figure: what is drawn, and how gnuplot draws it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "qkscope/tables.h"

namespace qkscope {

// Part of a picture that tells its numbers in the report when the mouse is over it. Edges are
// fractions of the picture's width and height, from the left and from above.
struct HoverCell {
  double left = 0;
  double top = 0;
  double right = 0;
  double bottom = 0;
  std::string text;
  std::int64_t layer = -1;  // of the head that a click shows; -1: none
  std::int64_t head = -1;
};

struct Figure {
  std::string title;
  std::string caption;  // what it shows and how it was computed, in sentences
  double width = 0;     // inches
  double height = 0;
  Table data;           // NAME.csv; numbers first and texts last, which gnuplot does not read
  std::string script;   // gnuplot commands; the variable `data` is the CSV's name
  std::string missing;  // why there is nothing to draw; empty when there is
  std::vector<HoverCell> hover;  // of cells that have more to say than their colour
};

// A figure that the results have no data for.
inline Figure nothing_to_draw(std::string why) {
  Figure figure;
  figure.missing = std::move(why);
  return figure;
}

}  // namespace qkscope
