// qkscope pool: computes statistics over the heads of several analyses.
#include <cmath>
#include <filesystem>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/error.h"
#include "cli/logging.h"
#include "cli/output_folder.h"
#include "qkscope/experimental/store.h"
#include "qkscope/experimental/study.h"
#include "qkscope/experimental/text.h"
#include "qkscope/tables.h"

namespace qkscope::cli {
namespace {

struct PoolArguments {
  CommonOptions common;
  PoolOptions options;
  std::string out;
  std::vector<std::string> pairs;
};

void write(const Table& table, const std::string& path) {
  table.write_csv(path + ".csv");
  table.write_parquet(path + ".parquet");
}

std::string format_value(double value) {
  return std::isnan(value) ? "-" : fmt::format("{:.4g}", value);
}

// Prints the rows of the pooled table whose columns `model` and `heads` are both "all".
void print_pooled(const Table& table) {
  const auto& columns = table.columns();
  fmt::print("{:<28}{:>8}{:>12}{:>12}\n", "quantity", "heads", "mean", "median");
  for (std::size_t i = 0; i < static_cast<std::size_t>(table.rows()); ++i)
    if (columns[0].texts[i] == "all" && columns[1].texts[i] == "all")
      fmt::print("{:<28}{:>8}{:>12}{:>12}\n", columns[2].texts[i], columns[3].integers[i],
                 format_value(columns[4].reals[i]), format_value(columns[5].reals[i]));
}

void run(PoolArguments& arguments) {
  for (const auto& pair : arguments.pairs) {
    const auto names = split(pair, ',');
    if (names.size() != 2) reject("--pair {}: expected two quantities, X,Y", pair);
    arguments.options.pairs.emplace_back(names[0], names[1]);
  }
  check_output_folder(arguments.out);
  StoredOutput output(arguments.out, "tables");
  for (auto& results : arguments.options.results)
    results = fetch_stored(results, arguments.common.quiet);
  const auto tables = pool_results(arguments.options);
  const auto& out = output.folder();
  std::filesystem::create_directories(out);
  write(tables.pooled, out + "/pooled");
  write(tables.depth, out + "/pooled_depth");
  if (!arguments.options.pairs.empty()) write(tables.correlations, out + "/head_correlations");
  if (!arguments.options.scores.empty()) write(tables.scores, out + "/score_correlations");
  output.publish(arguments.common.quiet);
  if (!arguments.common.quiet) print_pooled(tables.pooled);
  info("tables are in {}", arguments.out);
}

}  // namespace

void add_pool(CLI::App& app) {
  auto [command, arguments] = add_command<PoolArguments>(
      app, "pool", "Heads of several analyses become one sample: means, medians, correlations",
      run);
  auto& options = arguments->options;
  command
      ->add_option("results", options.results,
                   "Results of 'qkscope analyze', and folders of sweeps (RESULTS/NAME)")
      ->required();
  command->add_option("--out", arguments->out, "Folder or address for the tables (made if missing)")
      ->required();
  command->add_option("--depth-bins", options.depth_bins, "Bins of depth (layer / last layer)")
      ->check(integer_between(1, 1000))
      ->capture_default_str();
  command
      ->add_option("--pair", arguments->pairs,
                   "Correlation over heads of two quantities: bias_strength,separation_strength; "
                   "repeatable (default: none)")
      ->allow_extra_args(false);
  command
      ->add_option(
          "--scores", options.scores,
          "CSV of outside scores to correlate every column of the overview with (default: none)")
      ->check(existing_file());
  command->add_option("--by", options.by, "Column of --scores that holds the labels of the runs")
      ->capture_default_str();
  command->footer(
      "merge: shards of one run. combine: tables of several sweeps. pool: heads of several "
      "analyses.");
}

}  // namespace qkscope::cli
