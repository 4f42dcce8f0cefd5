// qkscope compare: the numbers of a sweep beside published ones.
#include <cmath>
#include <memory>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/common_options.h"
#include "core/log.h"
#include "sweep/published.h"

namespace qkscope::cli {
namespace {

struct Options {
  CommonOptions common;
  std::string results;
  std::string published = "smollm3";
  bool csv = false;
};

Table difference_table(const Comparison& comparison) {
  Table table;
  table.column("checkpoint", Table::Type::text)
      .column("model", Table::Type::text)
      .column("measure", Table::Type::text)
      .column("published", Table::Type::real)
      .column("ours", Table::Type::real)
      .column("difference", Table::Type::real);
  for (const auto& run : comparison.runs)
    for (const auto& measure : overview_measures()) {
      const auto found = run.published->values.find(measure.name);
      if (found == run.published->values.end()) continue;
      const double ours = run.ours ? run.ours->value(measure.name) : std::nan("");
      table.add({run.published->label, run.ours ? run.ours->label : "", measure.name, found->second,
                 ours, ours - found->second});
    }
  return table;
}

// Small numbers in powers of ten, so that digits and not zeros fill the column.
std::string shown(double value, bool sign) {
  if (std::isnan(value)) return "-";
  const double size = std::fabs(value);
  const bool small = size > 0 && size < 0.001;
  if (small) return sign ? fmt::format("{:+.2e}", value) : fmt::format("{:.2e}", value);
  return sign ? fmt::format("{:+.4f}", value) : fmt::format("{:.4f}", value);
}

void print_differences(const Table& table) {
  const auto& columns = table.columns();
  std::string last;
  for (std::size_t i = 0; i < static_cast<std::size_t>(table.rows()); ++i) {
    const auto& checkpoint = columns[0].texts[i];
    const auto& model = columns[1].texts[i];
    if (checkpoint != last) {
      fmt::print("{}{}\n  {:<20}{:>11}{:>11}{:>11}\n", checkpoint,
                 model.empty()         ? " (not in this sweep, or not finished)"
                 : model == checkpoint ? ""
                                       : fmt::format(" beside our {}", model),
                 "", "published", "ours", "difference");
      last = checkpoint;
    }
    fmt::print("  {:<20}{:>11}{:>11}{:>11}\n", columns[2].texts[i],
               shown(columns[3].reals[i], false), shown(columns[4].reals[i], false),
               shown(columns[5].reals[i], true));
  }
}

void run(const Options& options) {
  options.common.apply();
  const SweepFolder folder(options.results);
  const auto index = read_sweep_index(folder);
  const auto rows = read_overview(folder, index.runs);
  const auto comparison = compare_with(published_runs(options.published), rows);
  if (!comparison.by_label)
    log::warn(
        "{}: no label is that of a published checkpoint; matched by order. Another model: "
        "trends can be compared, values cannot",
        index.name);
  const auto table = difference_table(comparison);
  if (options.csv)
    fmt::print("{}", table.to_csv());
  else
    print_differences(table);
}

}  // namespace

void add_compare(CLI::App& app) {
  auto options = std::make_shared<Options>();
  auto* command = app.add_subcommand("compare", "The numbers of a sweep beside published ones");
  command->add_option("results", options->results, "Folder of a sweep: RESULTS/NAME")->required();
  command->add_option("--published", options->published, "Whose numbers")->capture_default_str();
  command->add_flag("--csv", options->csv, "Print CSV with every digit");
  options->common.add_to(*command);
  command->callback([options] { run(*options); });
}

}  // namespace qkscope::cli
