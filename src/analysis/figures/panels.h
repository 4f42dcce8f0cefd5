// A grid of small plots, and the legend of their marks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "analysis/figures/figure.h"

namespace qkscope {

// One entry of a legend.
struct KeyEntry {
  std::string title;  // gnuplot markup
  std::string colour;
  int point_type;
};

// Legend of the marks for heads of RoPE and NoPE layers.
std::vector<KeyEntry> layer_key();

// A legend in centred rows. gnuplot's own key moves with the plot and covers points.
class Key {
 public:
  Key(std::vector<KeyEntry> entries, double figure_width);
  double height() const;  // inches; 0 without entries
  // Returns gnuplot labels for the legend, `bottom` inches above the lower edge of the figure.
  std::string labels(double bottom = 0) const;

 private:
  struct Row {
    std::vector<KeyEntry> entries;
    double width = 0;  // inches
  };
  double figure_width_;
  std::vector<Row> rows_;
};

// A grid of panels that share the labels of their axes.
class Panels {
 public:
  struct Options {
    int count = 1;
    int columns = 5;    // at most
    double aspect = 1;  // height of a panel over its width
    double top = 0.25;  // margins around the grid in inches
    double right = 0.08;
    double left = 0.46;
    std::string y_format = "%h";
    bool own_ranges = false;  // each panel has its own axis ranges and tick labels
    std::string x_label;      // gnuplot markup
    std::string y_label;
  };

  explicit Panels(Options options);

  // Sets the size of the figure and begins its script with this preamble and the multiplot.
  void begin(Figure& figure, const std::string& preamble = "") const;
  std::string key(const std::vector<KeyEntry>& entries) const;  // legend above the grid
  // Returns the title and tick formats of panel `i`; the caller appends the plot command. Titles
  // longer than `longest` characters are shortened.
  std::string panel(int i, std::string_view title, std::size_t longest = 30) const;
  std::string end() const { return "unset multiplot\n"; }

  // Rectangle of panel `i` in fractions of the figure, measured from the left and from the top.
  struct Box {
    double left, top, right, bottom;
  };
  Box box(int i) const;

 private:
  Options options_;
  int columns_ = 1;
  int rows_ = 1;
  double bottom_ = 0.42;
  double gap_x_ = 0.08;
  double gap_y_ = 0.2;
  double panel_ = 0;
  double width_ = 0;
  double height_ = 0;
};

}  // namespace qkscope
