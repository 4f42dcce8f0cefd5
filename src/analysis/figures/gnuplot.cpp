#include <fmt/format.h>
#include <unistd.h>

#include "analysis/figures/figure.h"
#include "analysis/figures/style.h"
#include "base/core/error.h"
#include "base/core/log.h"
#include "base/io/child_process.h"
#include "base/io/data_folder.h"

namespace qkscope {
namespace {

// Runs the gnuplot of the installed package, else the one on the PATH.
ChildResult run_program(std::vector<std::string> arguments, const std::string& folder = "") {
  std::string program = "gnuplot";
  for (const auto& helpers : helper_program_folders())
    if (::access((helpers + "/gnuplot").c_str(), X_OK) == 0) {
      program = helpers + "/gnuplot";
      break;
    }
  arguments.insert(arguments.begin(), program);
  auto result = run_child(arguments, folder);
  if (!result.found)
    failure(
        "gnuplot is not installed (no 'gnuplot' on the PATH), and it draws the figures; on Debian "
        "and Ubuntu: apt-get install gnuplot-nox fonts-liberation");
  return result;
}

// The cairo terminals define a point as 1/96 inch; the scale factors give all formats equal sizes.
constexpr char kTerminals[] = R"(if (format eq 'svg') {{
  set terminal svg size 72*width, 72*height fixed enhanced font '{font},{size}' background 'white'
}}
if (format eq 'png') {{
  set terminal pngcairo size {dpi}*width, {dpi}*height enhanced font '{font},{size}' \
    fontscale {dpi}/96.0 linewidth {dpi}/72.0 pointscale {dpi}/72.0 background 'white'
}}
if (format eq 'pdf') {{
  set terminal pdfcairo size width, height enhanced font '{font},{size}' fontscale 0.75 linewidth 2 \
    pointscale 1 background 'white'
}}
)";

constexpr char kStyle[] = R"(set encoding utf8
set datafile separator ','
set datafile columnheaders
set border 3 lw 0.7 lc rgb '{ink}'
set tics nomirror out scale 0.5
set grid y back lw 0.4 lt 1 lc rgb '{hair}'
set key top left Left reverse samplen 1.6 spacing 1.0 font ',{small}' noautotitle
set bars small
set pointintervalbox 0
set style fill solid noborder
mark = format eq 'svg' ? 1.35 : 1  # SVG draws points smaller
)";

}  // namespace

void require_gnuplot() {
  const int status = run_program({"--version"}).status;
  if (status != 0) failure("'gnuplot --version' ends with status {}; is it installed?", status);
}

std::string gnuplot_script(const std::string& name, const Figure& figure,
                           const std::vector<std::string>& formats) {
  std::string text = fmt::format(
      "# {}. `gnuplot {}.gp` in this folder draws it again.\n"
      "formats = '{}'\n"
      "data = '{}.csv'\n"
      "width = {:.3f}  # inches\n"
      "height = {:.3f}\n"
      "\n"
      "if (!exists('format')) {{  # the file loads itself once per format\n"
      "  do for [format in formats] {{ load '{}.gp' }}\n"
      "  exit\n"
      "}}\n"
      "reset\n",
      name, name, fmt::join(formats, " "), name, figure.width, figure.height, name);
  text += fmt::format(kTerminals, fmt::arg("font", style::kFont),
                      fmt::arg("size", style::kFontSize), fmt::arg("dpi", style::kDotsPerInch));
  text += fmt::format("set output '{}.'.format\n", name);
  text += fmt::format(kStyle, fmt::arg("ink", style::kInk), fmt::arg("hair", style::kHair),
                      fmt::arg("small", style::kSmall));
  return text + "\n" + figure.script + "\nset output\n";
}

void run_gnuplot(const std::string& folder, const std::string& name) {
  // --default-settings: start-up files of the user must not change the figures.
  const auto result = run_program({"--default-settings", name + ".gp"}, folder);
  if (result.status != 0) failure("gnuplot could not draw {}:\n{}", name, result.err);
  if (!result.err.empty()) log::debug("gnuplot on {}:\n{}", name, result.err);
}

}  // namespace qkscope
