#include "figures/key.h"

#include <fmt/format.h>

#include "figures/script.h"
#include "figures/style.h"

namespace qkscope {
namespace {

constexpr double kKeyRow = 0.15;  // inches

// The mark, its title without the markup, and the room to the next.
double entry_width(const KeyEntry& entry) {
  std::string plain = entry.title;
  for (const std::string mark : {"{/:Italic ", "{", "}", "_", "^"})
    for (auto at = plain.find(mark); at != std::string::npos; at = plain.find(mark))
      plain.erase(at, mark.size());
  return 0.26 + text_width(plain, style::kSmall);
}

}  // namespace

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

}  // namespace qkscope
