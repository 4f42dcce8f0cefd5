// A grid of small plots, and the key that says what their marks stand for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace qkscope {

// A mark and what it stands for.
struct KeyEntry {
  std::string title;  // gnuplot markup
  std::string colour;
  int point_type;
};

// RoPE and NoPE layers, as points of heads are marked everywhere.
std::vector<KeyEntry> layer_key();

// A key in centred rows over a figure of this width. gnuplot's own key moves with the
// plot and hides what is under it.
class Key {
 public:
  Key(std::vector<KeyEntry> entries, double figure_width);
  double height() const;                        // inches; 0 without entries
  std::string labels(double bottom = 0) const;  // `bottom` inches above the figure's lower edge

 private:
  struct Row {
    std::vector<KeyEntry> entries;
    double width = 0;  // inches
  };
  double figure_width_;
  std::vector<Row> rows_;
};

// Panels with common axes, in rows.
class Panels {
 public:
  struct Options {
    int count = 1;
    int columns = 5;      // at most
    double aspect = 1;    // height of a panel over its width
    double top = 0.25;    // inches above the panels
    double right = 0.08;  // and beside them
    double left = 0.46;
    std::string y_format = "%h";
    bool own_ranges = false;  // every panel has its own axes and shows their numbers
    std::string x_label;      // gnuplot markup
    std::string y_label;
  };

  explicit Panels(Options options);
  double width() const { return width_; }
  double height() const { return height_; }

  std::string begin() const;
  std::string key(const std::vector<KeyEntry>& entries) const;  // above the panels
  // Title and ticks of panel `i`; the plot command follows.
  std::string panel(int i, std::string_view title, std::size_t longest = 30) const;
  std::string end() const;

  // Where panel `i` is, in fractions of the figure from the left and from above.
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
