#include "figures/script.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include <fmt/format.h>

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
  return static_cast<double>(utf8::count(text)) * points * 0.55 / 72;
}

std::string phase_label(std::string_view text, double x, double lines_up) {
  return fmt::format(
      "set label {} at first {}, graph 1 offset 0, {} center font ',{}' textcolor rgb '{}'\n",
      quoted(text), x, 0.45 + 0.75 * lines_up, style::kSmall, style::kInk);
}

// On two lines where one is wider than the phase.
std::string phase_labels(const Phase& phase, double inches) {
  const double x = 0.5 * static_cast<double>(phase.first + phase.last);
  const auto blank = phase.name.find(' ');
  if (blank == std::string::npos || text_width(phase.name, style::kSmall) < inches)
    return phase_label(phase.name, x, 0);
  return phase_label(phase.name.substr(0, blank), x, 1) +
         phase_label(phase.name.substr(blank + 1), x, 0);
}

std::string phase_marks(const Results& results, bool names) {
  const auto phases = phases_of(results);
  if (phases.size() < 2) return "";
  std::string text;
  for (std::size_t i = 1; i < phases.size(); ++i)
    text += fmt::format(
        "set arrow from first {0}, graph 0 to first {0}, graph 1 nohead dashtype 2 lw 0.6 lc rgb "
        "'{1}' back\n",
        static_cast<double>(phases[i].first) - 0.5, style::kInk);
  if (!names) return text;
  const double per_run = (style::kColumn - 0.6) / static_cast<double>(results.runs().size());
  for (const auto& phase : phases)
    text += phase_labels(phase, per_run * static_cast<double>(phase.last - phase.first + 1));
  return text;
}

std::string run_range(const Results& results) {
  return fmt::format("set xrange [-0.5:{}]\n", static_cast<double>(results.runs().size()) - 0.5);
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

std::string run_axis(const Results& results, bool name_phases) {
  std::string tics;
  const auto& runs = results.runs();
  for (std::size_t i = 0; i < runs.size(); ++i)
    tics += fmt::format("{}{} {}", i > 0 ? ", " : "",
                        quoted(shortened(runs[i].label, kLongestLabel)), i);
  const bool slanted = runs.size() > 3;
  return run_range(results) +
         fmt::format("set xtics format '%g' {} ({}) font ',{}'\n",
                     slanted ? "rotate by 40 right offset 0.4, 0" : "norotate center", tics,
                     style::kSmall) +
         phase_marks(results, name_phases);
}

std::string bare_run_axis(const Results& results, bool name_phases) {
  return run_range(results) + "set xtics norotate 1 format ''\n" +
         phase_marks(results, name_phases);
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

std::string plot_series(const std::vector<Series>& series, std::size_t runs) {
  std::string text = "plot \\\n";
  for (const auto& s : series)
    if (runs > 1)
      text += fmt::format(
          "  data using 1:{}:{} with filledcurves fill solid 0.16 noborder lc rgb '{}' notitle, "
          "\\\n",
          s.low, s.high, s.colour);
    else
      text +=
          fmt::format("  data using 1:{}:{}:{} with yerrorbars pt 0 lw 1 lc rgb '{}' notitle, \\\n",
                      s.middle, s.low, s.high, s.colour);
  for (std::size_t i = 0; i < series.size(); ++i) {
    const auto& s = series[i];
    text += fmt::format(
        "  data using 1:{} with linespoints lw 1.4 pt {} ps 0.55 lc rgb '{}' title '{}'{}\n",
        s.middle, s.point_type, s.colour, s.title, i + 1 < series.size() ? ", \\" : "");
  }
  return text;
}

std::string plot_whiskers(const std::vector<Series>& series) {
  std::string text = "plot \\\n";
  const double step = series.size() > 1 ? 0.22 : 0;
  for (std::size_t i = 0; i < series.size(); ++i) {
    const auto& s = series[i];
    const double shift =
        step * (static_cast<double>(i) - 0.5 * static_cast<double>(series.size() - 1));
    text += fmt::format(
        "  data using ($1 + {}):{}:{}:{} with yerrorbars lw 1.2 pt {} ps 0.6 lc rgb '{}' title "
        "'{}'{}\n",
        shift, s.middle, s.low, s.high, s.point_type, s.colour, s.title,
        i + 1 < series.size() ? ", \\" : "");
  }
  return text;
}

Panels::Panels(Options options) : options_(std::move(options)) {
  columns_ = std::min(options_.columns, options_.count);
  rows_ = (options_.count + columns_ - 1) / columns_;
  if (options_.own_ranges) {
    gap_x_ = 0.3;
    gap_y_ = 0.36;
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
                     0.1 / height_) +
         fmt::format("set label 1002 '{}' at screen {:.4f}, screen {:.4f} center rotate\n",
                     options_.y_label, 0.09 / width_,
                     0.5 * (1 + (bottom_ - options_.top) / height_)) +
         fmt::format("set tics font ',{}'\n", style::kTiny);
}

std::string Panels::panel(int i, std::string_view title) const {
  std::string text;
  if (i == 1) text += "unset label 1001\nunset label 1002\n";
  text += fmt::format("set title {} font ',{}' offset 0, -0.7\n", quoted(shortened(title, 30)),
                      style::kSmall);
  if (options_.own_ranges) return text;
  const bool lowest = i + columns_ >= options_.count;
  text += fmt::format("set format x '{}'\n", lowest ? options_.x_format : "");
  text += fmt::format("set format y '{}'\n", i % columns_ == 0 ? "%h" : "");
  return text;
}

std::string Panels::end() const {
  return "unset multiplot\n";
}

}  // namespace qkscope
