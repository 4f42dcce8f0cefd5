#include <fmt/format.h>
#include <unistd.h>

#include "analysis/figures/figure.h"
#include "analysis/figures/style.h"
#include "base/core/error.h"
#include "base/core/log.h"
#include "base/io/child_process.h"
#include "base/io/data_folder.h"

namespace qkscope {

// The file figure.gp. The cairo terminals define a point as 1/96 inch; its scale factors give all
// formats equal sizes.
namespace embedded {
extern const char figure_gp[];
}

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

}  // namespace

void require_gnuplot() {
  const int status = run_program({"--version"}).status;
  if (status != 0) failure("'gnuplot --version' ends with status {}; is it installed?", status);
}

std::string gnuplot_script(const std::string& name, const Figure& figure,
                           const std::vector<std::string>& formats) {
  return fmt::format(fmt::runtime(embedded::figure_gp), fmt::arg("name", name),
                     fmt::arg("formats", fmt::join(formats, " ")), fmt::arg("width", figure.width),
                     fmt::arg("height", figure.height), fmt::arg("font", style::kFont),
                     fmt::arg("size", style::kFontSize), fmt::arg("dpi", style::kDotsPerInch),
                     fmt::arg("ink", style::kInk), fmt::arg("hair", style::kHair),
                     fmt::arg("small", style::kSmall), fmt::arg("script", figure.script));
}

void run_gnuplot(const std::string& folder, const std::string& name) {
  // --default-settings: start-up files of the user must not change the figures.
  const auto result = run_program({"--default-settings", name + ".gp"}, folder);
  if (result.status != 0) failure("gnuplot could not draw {}:\n{}", name, result.err);
  if (!result.err.empty()) log::debug("gnuplot on {}:\n{}", name, result.err);
}

}  // namespace qkscope
