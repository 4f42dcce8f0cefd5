#include "analysis/figures/script.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "analysis/figures/style.h"
#include "base/core/utf8.h"

namespace qkscope {

std::string one_line(std::string_view text) {
  std::string result = replace_invalid_utf8(text);
  for (char& c : result)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  return result;
}

std::string escaped_markup(std::string_view text) {
  std::string result;
  for (const char c : one_line(text)) {
    if (std::string_view("\\{}_^@&~").find(c) != std::string_view::npos) result += '\\';
    if (c == '\'') result += '\'';
    result += c;
  }
  return result;
}

std::string quoted(const std::string& text) {
  return "'" + escaped_markup(text) + "'";
}

std::string shortened(std::string_view text, std::size_t characters) {
  std::string whole = one_line(text);
  const auto count = utf8::count_characters(whole);
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

double token_step(double range, int wanted) {
  return std::max(1.0, round_step(range, wanted));
}

bool is_in_thousands(double step) {
  return std::fmod(step, 1000) == 0;
}

std::string token_tics(const char* axis, double step, bool thousands) {
  return fmt::format("set {0}tics {1}\nset format {0} '{2}'\n", axis, step,
                     thousands ? "%.0s%c" : "%.0f");
}

double text_width(std::string_view text, double points) {
  return static_cast<double>(utf8::count_characters(text)) * points * 0.56 / 72;
}

std::string palette(const std::vector<std::string>& colours) {
  std::string stops;
  for (std::size_t i = 0; i < colours.size(); ++i)
    stops += fmt::format("{}{} '{}'", i > 0 ? ", " : "", i, colours[i]);
  return fmt::format("set palette defined ({})\n", stops);
}

std::string margins(const PlotBox& box) {
  return fmt::format(
      "set lmargin at screen {:.4f}/width\nset rmargin at screen {:.4f}/width\n"
      "set bmargin at screen {:.4f}/height\nset tmargin at screen {:.4f}/height\n",
      box.left, box.right, box.bottom, box.top);
}

std::string plot_unit_cells(int x, int y, int value) {
  return fmt::format(
      "  data using {0}:{1}:(${0} - 0.5):(${0} + 0.5):(${1} - 0.5):(${1} + 0.5):{2} with "
      "boxxyerror fillstyle solid noborder linecolor palette",
      x, y, value);
}

std::string shade_functions() {
  return fmt::format(
      "part(from, to, t, shift) = int((from / shift) % 256 + t * ((to / shift) % 256 - (from / "
      "shift) % 256)) * shift\n"
      "mix(from, to, t) = part(from, to, t, 65536) + part(from, to, t, 256) + part(from, to, t, "
      "1)\n"
      "query(t) = mix(0x{}, 0x{}, t)\n"
      "key(t) = mix(0x{}, 0x{}, t)\n",
      style::kQueryEarly + 1, style::kQueryLate + 1, style::kKeyEarly + 1, style::kKeyLate + 1);
}

std::string shade_legend(double height) {
  const double y = 1 - 0.09 / height;
  std::string text;
  const auto side = [&](const char* name, const char* function, int point, double x) {
    text += fmt::format("set label '{}, early to late' at screen {:.4f}, {:.4f} font ',{}'\n", name,
                        x + 0.08, y, style::kSmall);
    for (int i = 0; i < 5; ++i)
      text += fmt::format(
          "set label '' at screen {:.4f}, {:.4f} point pt {} ps 0.5*mark lc rgb {}({})\n",
          x + 0.015 * i, y, point, function, 0.25 * i);
  };
  side("queries", "query", style::kCircle, 0.22);
  side("keys", "key", style::kSquare, 0.58);
  return text;
}

std::string plot_shaded_points(std::size_t panel, double size) {
  return fmt::format(
      "plot data using ($1 == {0} && $2 == 1 ? $4 : NaN):5:(key($3)) with points pt {1} ps "
      "{3}*mark lc rgb variable, \\\n"
      "  data using ($1 == {0} && $2 == 0 ? $4 : NaN):5:(query($3)) with points pt {2} ps {3}*mark "
      "lc rgb variable\n",
      panel, style::kSquare, style::kCircle, size);
}

}  // namespace qkscope
