// qkscope compare: the numbers of a sweep beside published ones.
#include <cmath>
#include <memory>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/common_options.h"
#include "qkscope/study.h"
#include "qkscope/tables.h"

namespace qkscope::cli {
namespace {

struct CompareArguments {
  CommonOptions common;
  std::string results;
  std::string published = "smollm3";
  bool csv = false;
};

// As many digits as were published; a difference with its sign.
std::string shown(double value, bool sign = false) {
  if (std::isnan(value)) return "-";
  return sign ? fmt::format("{:+.2g}", value) : fmt::format("{:.3g}", value);
}

void print_differences(const Table& table) {
  const auto& columns = table.columns();
  std::string last;
  for (std::size_t i = 0; i < static_cast<std::size_t>(table.rows()); ++i) {
    const auto& measure = columns[0].texts[i];
    if (measure != last)
      fmt::print("{}{:<22}{:<18}{:>10}{:>10}{:>12}\n", last.empty() ? "" : "\n", measure, "our run",
                 "published", "ours", "difference");
    last = measure;
    const auto& ours = columns[2].texts[i];
    fmt::print("  {:<20}{:<18}{:>10}{:>10}{:>12}\n", columns[1].texts[i],
               ours.empty() ? "not finished" : ours, shown(columns[3].reals[i]),
               shown(columns[4].reals[i]), shown(columns[5].reals[i], true));
  }
}

void run(const CompareArguments& options) {
  options.common.apply();
  const auto table = compare_with_published(options.results, options.published);
  if (options.csv)
    fmt::print("{}", table.to_csv());
  else
    print_differences(table);
}

}  // namespace

void add_compare(CLI::App& app) {
  auto options = std::make_shared<CompareArguments>();
  auto* command = app.add_subcommand("compare", "The numbers of a sweep beside published ones");
  command->add_option("results", options->results, "Folder of a sweep: RESULTS/NAME")->required();
  command->add_option("--published", options->published, "Whose numbers")->capture_default_str();
  command->add_flag("--csv", options->csv, "Print CSV with every digit");
  options->common.add_to(*command);
  command->callback([options] { run(*options); });
}

}  // namespace qkscope::cli
