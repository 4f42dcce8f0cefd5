#include "analysis/figures/panels.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "analysis/figures/script.h"
#include "analysis/figures/style.h"

namespace qkscope {
namespace {

constexpr double kKeyRow = 0.15;  // inches

// Width in inches of the mark, the title without its markup, and the gap to the next entry.
double entry_width(const KeyEntry& entry) {
  std::string plain = entry.title;
  for (const std::string mark : {"{/:Italic ", "{", "}", "_", "^"})
    for (auto at = plain.find(mark); at != std::string::npos; at = plain.find(mark))
      plain.erase(at, mark.size());
  return 0.26 + text_width(plain, style::kSmall);
}

}  // namespace

std::vector<KeyEntry> layer_key() {
  return {{"RoPE layers", style::kRope, style::kCircle},
          {"NoPE layers", style::kNope, style::kDiamond}};
}

Key::Key(std::vector<KeyEntry> entries, double figure_width) : figure_width_(figure_width) {
  for (auto& entry : entries) {
    const double width = entry_width(entry);
    if (rows_.empty() || rows_.back().width + width > figure_width_ - 0.1) rows_.emplace_back();
    rows_.back().width += width;
    rows_.back().entries.push_back(std::move(entry));
  }
}

double Key::height() const {
  return rows_.empty() ? 0 : 0.08 + kKeyRow * static_cast<double>(rows_.size());
}

std::string Key::labels(double bottom) const {
  std::string text;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    double x = 0.5 * (figure_width_ - rows_[i].width) + 0.08;
    const double y = bottom + 0.11 + kKeyRow * static_cast<double>(rows_.size() - 1 - i);
    for (const auto& entry : rows_[i].entries) {
      text += fmt::format(
          "set label '' at screen {0:.4f}/width, screen {1:.4f}/height point pt {3} ps 0.6*mark lc "
          "rgb "
          "'{4}'\nset label '{5}' at screen {2:.4f}/width, screen {1:.4f}/height font ',{6}'\n",
          x, y, x + 0.08, entry.point_type, entry.colour, entry.title, style::kSmall);
      x += entry_width(entry);
    }
  }
  return text;
}

Panels::Panels(Options options) : options_(std::move(options)) {
  columns_ = std::min(options_.columns, options_.count);
  rows_ = (options_.count + columns_ - 1) / columns_;
  if (options_.count == 1) options_.aspect = std::min(options_.aspect, 0.85);
  if (options_.x_label.empty()) bottom_ = options_.own_ranges ? 0.24 : 0.1;
  if (options_.own_ranges) {
    gap_x_ = 0.32;
    gap_y_ = 0.4;
  }
  constexpr double kWidest = 2.2;
  const double room = columns_ == 1 ? style::kColumn : style::kPage;
  panel_ = (room - options_.left - options_.right - gap_x_ * (columns_ - 1)) / columns_;
  if (columns_ > 1) panel_ = std::min(panel_, kWidest);
  width_ = options_.left + options_.right + columns_ * panel_ + gap_x_ * (columns_ - 1);
  height_ = bottom_ + options_.top + rows_ * panel_ * options_.aspect + gap_y_ * (rows_ - 1);
}

void Panels::begin(Figure& figure, const std::string& preamble) const {
  figure.width = width_;
  figure.height = height_;
  figure.script =
      preamble +
      fmt::format(
          "set multiplot layout {},{} margins {:.4f},{:.4f},{:.4f},{:.4f} spacing "
          "{:.4f},{:.4f}\n",
          rows_, columns_, options_.left / width_, 1 - options_.right / width_, bottom_ / height_,
          1 - options_.top / height_, gap_x_ / width_, gap_y_ / height_) +
      fmt::format("set label 1001 '{}' at screen {:.4f}, screen {:.4f} center\n", options_.x_label,
                  0.5 * (1 + (options_.left - options_.right) / width_), 0.11 / height_) +
      fmt::format("set label 1002 '{}' at screen {:.4f}, screen {:.4f} center rotate\n",
                  options_.y_label, 0.1 / width_, 0.5 * (1 + (bottom_ - options_.top) / height_)) +
      fmt::format("set tics font ',{}'\nset xtics offset 0, 0.5\nset ytics offset 0.4, 0\n",
                  style::kTiny);
}

std::string Panels::key(const std::vector<KeyEntry>& entries) const {
  const Key key(entries, width_);
  return key.labels(height_ - key.height());
}

std::string Panels::panel(int i, std::string_view title, std::size_t longest) const {
  std::string text;
  if (i == 1) text += "unset label\n";  // labels outside the panels are drawn with panel 0
  text += fmt::format("set title {} font ',{}' offset 0, -0.7\n", quoted(shortened(title, longest)),
                      style::kSmall);
  if (options_.own_ranges) return text;
  const bool lowest = i + columns_ >= options_.count;
  text += fmt::format("set format x '{}'\n", lowest ? "%h" : "");
  text += fmt::format("set format y '{}'\n", i % columns_ == 0 ? options_.y_format : "");
  return text;
}

Panels::Box Panels::box(int i) const {
  const double left = options_.left + (i % columns_) * (panel_ + gap_x_);
  const double tall = panel_ * options_.aspect;
  const double top = options_.top + (i / columns_) * (tall + gap_y_);
  return {left / width_, top / height_, (left + panel_) / width_, (top + tall) / height_};
}

}  // namespace qkscope
