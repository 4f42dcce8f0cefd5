// What the marks of a figure stand for.
#pragma once

#include <string>
#include <vector>

namespace qkscope {

// A mark and what it stands for.
struct KeyEntry {
  std::string title;  // gnuplot markup
  std::string colour;
  int point_type;
};

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

}  // namespace qkscope
