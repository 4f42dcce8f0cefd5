#include "cli/draw_sweep.h"

#include <algorithm>

#include <fmt/format.h>

#include "qkscope/figures.h"

namespace qkscope::cli {
namespace {

// The two that tell the story.
constexpr const char* kCentral[] = {"position_signal", "taxonomy_evolution"};

}  // namespace

void draw_sweep(const std::string& folder, bool quiet) {
  const std::string out = folder + "/figures";
  const Drawn drawn =
      draw_figures({.results = folder, .out = out, .only = "", .quiet = quiet, .again = false});
  if (quiet) return;
  fmt::print("{} figures in {}{}\n", drawn.figures.size(), out,
             drawn.as_before ? ", drawn before from the same results" : "");
  for (const auto* name : kCentral)
    if (std::find(drawn.figures.begin(), drawn.figures.end(), name) != drawn.figures.end())
      fmt::print("{}/{}.png\n", out, name);
  fmt::print("report: {}\n", drawn.report);
}

}  // namespace qkscope::cli
