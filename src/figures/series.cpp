#include "figures/series.h"

#include <fmt/format.h>

namespace qkscope {
namespace {

std::string scaled(const std::string& expression, double scale) {
  return scale == 1 ? expression : fmt::format("({}) * {}", expression, scale);
}

// From the low to the high end, without gnuplot's gap around the point.
std::string whisker(const std::string& x, const Series& s, double scale) {
  return fmt::format("data using ({}):({}):(0):({}) with vectors nohead lw 1.2 lc rgb '{}'", x,
                     scaled(s.low, scale), scaled(fmt::format("({}) - ({})", s.high, s.low), scale),
                     s.colour);
}

}  // namespace

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
    text += fmt::format(
        "  data using 1:({}) with linespoints lw 1.4 pt {} ps 0.5*mark lc rgb '{}'{}\n",
        scaled(s.middle, scale), s.point_type, s.colour, i + 1 < series.size() ? ", \\" : "");
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
    text += fmt::format(
        "  {}, \\\n  data using ({}):({}) with points pt {} ps 0.6*mark lc rgb '{}'{}\n",
        whisker(x, s, scale), x, scaled(s.middle, scale), s.point_type, s.colour,
        i + 1 < series.size() ? ", \\" : "");
  }
  return text;
}

std::vector<KeyEntry> key_of(const std::vector<Series>& series) {
  std::vector<KeyEntry> entries;
  for (const auto& s : series) entries.push_back({s.title, s.colour, s.point_type});
  return entries;
}

}  // namespace qkscope
