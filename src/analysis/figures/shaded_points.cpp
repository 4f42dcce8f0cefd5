#include "analysis/figures/shaded_points.h"

#include <fmt/format.h>

#include "analysis/figures/style.h"

namespace qkscope {

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
