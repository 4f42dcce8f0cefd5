#include "figures/script.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include <fmt/format.h>

#include "core/text.h"
#include "core/utf8.h"
#include "figures/style.h"

namespace qkscope {
namespace {

constexpr std::size_t kLongestLabel = 22;

// First and last run of each phase.
struct Phase {
  std::string name;
  std::size_t first;
  std::size_t last;
};

std::vector<Phase> phases_of(const Results& results) {
  std::vector<Phase> phases;
  const auto& runs = results.runs();
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (phases.empty() || phases.back().name != runs[i].phase)
      phases.push_back({runs[i].phase, i, i});
    phases.back().last = i;
  }
  return phases;
}

// Rough inches of a line of text.
double text_width(std::string_view text, double points) {
  return static_cast<double>(utf8::count(text)) * points * 0.56 / 72;
}

// The name on as many lines as it needs to be no wider than `inches`, if blanks allow it.
std::vector<std::string> lines_of(const std::string& name, double inches) {
  std::vector<std::string> lines;
  for (const auto& word : split(one_line(name), ' ')) {
    if (!lines.empty() && text_width(lines.back() + " " + word, style::kPhase) + 0.05 <= inches)
      lines.back() += " " + word;
    else
      lines.push_back(word);
  }
  return lines;
}

double phase_width(const Results& results, const Phase& phase, double inches) {
  return inches * static_cast<double>(phase.last - phase.first + 1) /
         static_cast<double>(results.runs().size());
}

constexpr double kPhaseLine = 0.085;  // inches between lines

std::string phase_names(const Results& results, double inches) {
  std::string text;
  for (const auto& phase : phases_of(results)) {
    const auto lines = lines_of(phase.name, phase_width(results, phase, inches));
    const double x = 0.5 * static_cast<double>(phase.first + phase.last);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const double up = 0.06 + kPhaseLine * static_cast<double>(lines.size() - 1 - i);
      text += fmt::format(
          "set label {} at first {}, graph 1 offset character 0, screen {:.4f}/height center font "
          "',{}' textcolor rgb '{}'\n",
          quoted(lines[i]), x, up, style::kPhase, style::kInk);
    }
  }
  return text;
}

std::string phase_lines(const Results& results) {
  std::string text;
  const auto phases = phases_of(results);
  for (std::size_t i = 1; i < phases.size(); ++i)
    text += fmt::format(
        "set arrow from first {0}, graph 0 to first {0}, graph 1 nohead dashtype 2 lw 0.6 lc rgb "
        "'{1}' back\n",
        static_cast<double>(phases[i].first) - 0.5, style::kInk);
  return text;
}

std::string scaled(const std::string& expression, double scale) {
  return scale == 1 ? expression : fmt::format("({}) * {}", expression, scale);
}

// From the low to the high end, without gnuplot's gap around the point.
std::string whisker(const std::string& x, const Series& s, double scale) {
  return fmt::format("data using ({}):({}):(0):({}) with vectors nohead lw 1.2 lc rgb '{}'", x,
                     scaled(s.low, scale), scaled(fmt::format("({}) - ({})", s.high, s.low), scale),
                     s.colour);
}

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

std::string one_line(std::string_view text) {
  std::string result = utf8::replace_invalid(text);
  for (char& c : result)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  return result;
}

std::string quoted(std::string_view text) {
  std::string result = "'";
  for (const char c : one_line(text)) {
    if (std::string_view("\\{}_^@&~").find(c) != std::string_view::npos) result += '\\';
    if (c == '\'') result += '\'';
    result += c;
  }
  return result + "'";
}

std::string shortened(std::string_view text, std::size_t characters) {
  const std::string whole = one_line(text);
  const auto count = utf8::count(whole);
  if (count <= characters) return whole;
  const auto head = (characters - 1) / 2;
  const auto tail = characters - 1 - head;
  std::string result;
  std::size_t index = 0;
  for (std::size_t at = 0; at < whole.size(); ++index) {
    const auto size = utf8::length(whole[at]);
    if (index == head) result += "…";
    if (index < head || index >= count - tail) result += whole.substr(at, size);
    at += size;
  }
  return result;
}

double round_step(double range, int wanted) {
  if (!(range > 0)) return 1;
  const double rough = range / wanted;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= 0.99 * rough) return factor * power;
  return 10 * power;
}

std::string run_axis(const Results& results, const RunAxis& axis) {
  const auto& runs = results.runs();
  std::string text = fmt::format("set xrange [-0.5:{}]\n", static_cast<double>(runs.size()) - 0.5);
  if (axis.labels) {
    std::string tics;
    for (std::size_t i = 0; i < runs.size(); ++i)
      tics += fmt::format("{}{} {}", i > 0 ? ", " : "",
                          quoted(shortened(runs[i].label, kLongestLabel)), i);
    text += fmt::format("set xtics format '%g' {} ({}) font ',{}'\n",
                        runs.size() > 3 ? "rotate by 40 right offset 0.4, 0.15" : "norotate center",
                        tics, style::kSmall);
  } else {
    text += "set xtics norotate 1 format ''\n";
  }
  text += phase_lines(results);
  if (axis.phases && phases_of(results).size() > 1) text += phase_names(results, axis.inches);
  return text;
}

double phases_height(const Results& results, double inches) {
  const auto phases = phases_of(results);
  if (phases.size() < 2) return 0.08;
  std::size_t most = 1;
  for (const auto& phase : phases)
    most = std::max(most, lines_of(phase.name, phase_width(results, phase, inches)).size());
  return 0.1 + kPhaseLine * static_cast<double>(most);
}

std::string run_rows(const Results& results) {
  std::string tics;
  const auto& runs = results.runs();
  for (std::size_t i = 0; i < runs.size(); ++i)
    tics += fmt::format("{}{} {}", i > 0 ? ", " : "",
                        quoted(shortened(runs[i].label, kLongestLabel)), -static_cast<int>(i));
  return fmt::format("set yrange [{}:0.5]\nset ytics ({}) scale 0 font ',{}'\n",
                     0.5 - static_cast<double>(runs.size()), tics, style::kSmall);
}

double run_labels_height(const Results& results) {
  if (results.runs().size() <= 3) return 0.3;
  double longest = 0;
  for (const auto& run : results.runs())
    longest = std::max(longest, text_width(shortened(run.label, kLongestLabel), style::kSmall));
  return 0.22 + 0.68 * longest;
}

std::string plot_series(const std::vector<Series>& series, std::size_t runs, double scale) {
  std::string text = "plot \\\n";
  for (const auto& s : series)
    if (runs > 1)
      text += fmt::format(
          "  data using 1:({}):({}) with filledcurves fill transparent solid 0.16 noborder lc rgb "
          "'{}', \\\n",
          scaled(s.low, scale), scaled(s.high, scale), s.colour);
    else
      text += fmt::format("  {}, \\\n", whisker("$1", s, scale));
  for (std::size_t i = 0; i < series.size(); ++i) {
    const auto& s = series[i];
    text += fmt::format("  data using 1:({}) with linespoints lw 1.4 pt {} ps 0.5 lc rgb '{}'{}\n",
                        scaled(s.middle, scale), s.point_type, s.colour,
                        i + 1 < series.size() ? ", \\" : "");
  }
  return text;
}

std::string plot_whiskers(const std::vector<Series>& series, double scale) {
  std::string text = "plot \\\n";
  const double step = series.size() > 1 ? 0.22 : 0;
  for (std::size_t i = 0; i < series.size(); ++i) {
    const auto& s = series[i];
    const auto x = fmt::format(
        "$1 + {}", step * (static_cast<double>(i) - 0.5 * static_cast<double>(series.size() - 1)));
    text += fmt::format("  {}, \\\n  data using ({}):({}) with points pt {} ps 0.6 lc rgb '{}'{}\n",
                        whisker(x, s, scale), x, scaled(s.middle, scale), s.point_type, s.colour,
                        i + 1 < series.size() ? ", \\" : "");
  }
  return text;
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
  return rows_.empty() ? 0 : 0.06 + kKeyRow * static_cast<double>(rows_.size());
}

std::string Key::labels(double bottom) const {
  std::string text;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    double x = 0.5 * (figure_width_ - rows_[i].width) + 0.08;
    const double y = bottom + 0.09 + kKeyRow * static_cast<double>(rows_.size() - 1 - i);
    for (const auto& entry : rows_[i].entries) {
      text += fmt::format(
          "set label '' at screen {0:.4f}/width, screen {1:.4f}/height point pt {3} ps 0.6 lc rgb "
          "'{4}'\nset label '{5}' at screen {2:.4f}/width, screen {1:.4f}/height font ',{6}'\n",
          x, y, x + 0.08, entry.point_type, entry.colour, entry.title, style::kSmall);
      x += entry_width(entry);
    }
  }
  return text;
}

std::vector<KeyEntry> key_of(const std::vector<Series>& series) {
  std::vector<KeyEntry> entries;
  for (const auto& s : series) entries.push_back({s.title, s.colour, s.point_type});
  return entries;
}

Panels::Panels(Options options) : options_(std::move(options)) {
  columns_ = std::min(options_.columns, options_.count);
  rows_ = (options_.count + columns_ - 1) / columns_;
  if (options_.own_ranges) {
    gap_x_ = 0.32;
    gap_y_ = 0.4;
  }
  constexpr double kWidest = 2.2;
  const double room = columns_ == 1 ? style::kColumn : style::kPage;
  panel_ = (room - left_ - options_.right - gap_x_ * (columns_ - 1)) / columns_;
  if (columns_ > 1) panel_ = std::min(panel_, kWidest);
  width_ = left_ + options_.right + columns_ * panel_ + gap_x_ * (columns_ - 1);
  height_ = bottom_ + options_.top + rows_ * panel_ * options_.aspect + gap_y_ * (rows_ - 1);
}

std::string Panels::begin() const {
  return fmt::format(
             "set multiplot layout {},{} margins {:.4f},{:.4f},{:.4f},{:.4f} spacing "
             "{:.4f},{:.4f}\n",
             rows_, columns_, left_ / width_, 1 - options_.right / width_, bottom_ / height_,
             1 - options_.top / height_, gap_x_ / width_, gap_y_ / height_) +
         fmt::format("set label 1001 '{}' at screen {:.4f}, screen {:.4f} center\n",
                     options_.x_label, 0.5 * (1 + (left_ - options_.right) / width_),
                     0.11 / height_) +
         fmt::format("set label 1002 '{}' at screen {:.4f}, screen {:.4f} center rotate\n",
                     options_.y_label, 0.1 / width_,
                     0.5 * (1 + (bottom_ - options_.top) / height_)) +
         fmt::format("set tics font ',{}'\nset xtics offset 0, 0.5\nset ytics offset 0.4, 0\n",
                     style::kTiny);
}

std::string Panels::key(const std::vector<KeyEntry>& entries) const {
  const Key key(entries, width_);
  return key.labels(height_ - key.height());
}

std::string Panels::panel(int i, std::string_view title) const {
  std::string text;
  if (i == 1) text += "unset label\n";  // what stands around the panels is drawn once
  text += fmt::format("set title {} font ',{}' offset 0, -0.7\n", quoted(shortened(title, 30)),
                      style::kSmall);
  if (options_.own_ranges) return text;
  const bool lowest = i + columns_ >= options_.count;
  text += fmt::format("set format x '{}'\n", lowest ? "%h" : "");
  text += fmt::format("set format y '{}'\n", i % columns_ == 0 ? options_.y_format : "");
  return text;
}

std::string Panels::end() const {
  return "unset multiplot\n";
}

}  // namespace qkscope
