// One figure: what is drawn, and how gnuplot draws it.
#pragma once

#include <string>
#include <utility>

#include "qkscope/tables.h"

namespace qkscope {

struct Figure {
  std::string title;
  std::string caption;  // what it shows and how it was computed, in sentences
  double width = 0;     // inches
  double height = 0;
  Table data;           // NAME.csv; numbers first and texts last, which gnuplot does not read
  std::string script;   // gnuplot commands; the variable `data` is the CSV's name
  std::string missing;  // why there is nothing to draw; empty when there is
};

// A figure that the results have no data for.
inline Figure nothing_to_draw(std::string why) {
  Figure figure;
  figure.missing = std::move(why);
  return figure;
}

}  // namespace qkscope
