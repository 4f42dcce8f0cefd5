// qkscope compare: compares runs with published numbers, or with each other.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/error.h"
#include "cli/logging.h"
#include "cli/output_folder.h"
#include "qkscope/experimental/store.h"
#include "qkscope/experimental/study.h"
#include "qkscope/tables.h"

namespace qkscope::cli {
namespace {

struct CompareArguments {
  CommonOptions common;
  CompareOptions compare;
  std::string results;
  std::string other;
  std::string out;
  bool csv = false;
};

std::string format_value(double value, bool sign = false) {
  if (std::isnan(value)) return "-";
  return sign ? fmt::format("{:+.2g}", value) : fmt::format("{:.4g}", value);
}

std::string format_with_error(double value, double se) {
  if (std::isnan(value)) return "-";
  return fmt::format("{:.4g} ± {}", value, std::isnan(se) ? "?" : fmt::format("{:.2g}", se));
}

// Accesses the columns of a comparison table by name.
struct ComparisonTable {
  const Table& table;

  std::size_t row_count() const { return static_cast<std::size_t>(table.rows()); }
  const std::string& text_at(const char* column, std::size_t row) const {
    return table.find(column)->texts[row];
  }
  double number_at(const char* column, std::size_t row) const {
    return table.find(column)->reals[row];
  }
};

// Column names and titles of the two sides of a comparison.
struct Sides {
  const char* left;
  const char* left_se;
  const char* left_title;
  const char* right;
  const char* right_se;
  const char* right_title;
};
constexpr Sides kPublished{"published", "se_published", "published", "ours", "se_ours", "ours"};
constexpr Sides kTwoRuns{"a", "se_a", "A", "b", "se_b", "B"};

// A printed row of the comparison table.
struct ComparisonRow {
  std::size_t row = 0;
  std::string measure;
  std::string runs;
};

void print_header(const std::string& name, const Sides& sides, std::size_t width, bool first) {
  fmt::print("{}{:<{}}  {:>20}{:>20}{:>12}{:>10}{:>8}\n", first ? "" : "\n", name, width,
             sides.left_title, sides.right_title, "difference", "se", "ratio");
}

void print_row(const ComparisonTable& rows, const Sides& sides, const ComparisonRow& line,
               const std::string& name, std::size_t width) {
  const auto number = [&](const char* column) { return rows.number_at(column, line.row); };
  fmt::print("  {:<{}}{:>20}{:>20}{:>12}{:>10}{:>8}\n", name, width,
             format_with_error(number(sides.left), number(sides.left_se)),
             format_with_error(number(sides.right), number(sides.right_se)),
             format_value(number("difference"), true), format_value(number("se")),
             std::isnan(number("z")) ? "-" : fmt::format("{:+.1f}", number("z")));
}

std::string join_names(const std::string& a, const std::string& b) {
  return a == b ? a : a + " / " + b;
}

void print_uncompared_measures(const ComparisonTable& rows) {
  std::vector<std::string> absent;
  std::vector<std::pair<std::string, std::vector<std::string>>> reasons;  // reason, measures
  for (std::size_t row = 0; row < rows.row_count(); ++row) {
    if (!std::isnan(rows.number_at("ours", row))) continue;
    if (rows.text_at("model", row).empty()) {
      const auto& name = rows.text_at("checkpoint", row);
      if (std::find(absent.begin(), absent.end(), name) == absent.end()) absent.push_back(name);
      continue;
    }
    const auto& why = rows.text_at("note", row);
    auto found = std::find_if(reasons.begin(), reasons.end(),
                              [&](const auto& reason) { return reason.first == why; });
    if (found == reasons.end()) found = reasons.insert(reasons.end(), {why, {}});
    const auto& measure = rows.text_at("measure", row);
    auto& list = found->second;
    if (std::find(list.begin(), list.end(), measure) == list.end()) list.push_back(measure);
  }
  if (!reasons.empty()) fmt::print("\nnot compared\n");
  for (const auto& [why, measures] : reasons)
    fmt::print("  {} ({}): {}\n", why, measures.size(), fmt::join(measures, ", "));
  if (!absent.empty()) fmt::print("\nno run here for {}\n", fmt::join(absent, ", "));
}

void print_missing_errors(const ComparisonTable& rows, const Sides& sides) {
  std::size_t compared = 0;
  std::size_t without = 0;
  for (std::size_t row = 0; row < rows.row_count(); ++row) {
    if (std::isnan(rows.number_at("difference", row))) continue;
    ++compared;
    if (std::isnan(rows.number_at("se", row))) ++without;
  }
  if (without > 0)
    fmt::print(
        "\nthe error is absent for {} of {} differences ({} or {} is not known): errors.csv of a "
        "run has the errors of its means\n",
        without, compared, sides.left_se, sides.right_se);
}

// Prints a block per measure with a line per run; for a single run, one block with a line per
// measure.
void print_blocks(const std::vector<ComparisonRow>& shown, const ComparisonTable& rows,
                  const Sides& sides) {
  const bool one = std::all_of(shown.begin(), shown.end(), [&](const ComparisonRow& line) {
    return line.runs == shown.front().runs;
  });
  std::size_t width = 24;
  for (const auto& line : shown) width = std::max({width, line.runs.size(), line.measure.size()});
  std::string last;
  for (const auto& line : shown) {
    const auto& block = one ? line.runs : line.measure;
    if (block != last || last.empty()) print_header(block, sides, width, last.empty());
    last = block;
    print_row(rows, sides, line, one ? line.measure : line.runs, width);
  }
  print_missing_errors(rows, sides);
}

void print_published_comparison(const Table& table) {
  const ComparisonTable rows{table};
  std::vector<ComparisonRow> shown;
  for (std::size_t row = 0; row < rows.row_count(); ++row)
    if (!std::isnan(rows.number_at("ours", row)))
      shown.push_back({row, rows.text_at("measure", row),
                       join_names(rows.text_at("checkpoint", row), rows.text_at("model", row))});
  print_blocks(shown, rows, kPublished);
  print_uncompared_measures(rows);
}

void print_run_comparison(const Table& table) {
  const ComparisonTable rows{table};
  std::vector<ComparisonRow> shown;
  for (std::size_t row = 0; row < rows.row_count(); ++row)
    shown.push_back({row, rows.text_at("measure", row),
                     join_names(rows.text_at("model_a", row), rows.text_at("model_b", row))});
  print_blocks(shown, rows, kTwoRuns);
}

void write(const Table& table, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  table.write_csv(folder + "/compare.csv");
  info("{}/compare.csv", folder);
}

void run(CompareArguments& options) {
  const bool two = !options.other.empty();
  if (!options.out.empty()) check_local_output(options.out);
  const bool quiet = options.common.quiet;
  const auto results = fetch_stored(options.results, quiet);
  const auto table = two ? compare_runs(results, fetch_stored(options.other, quiet))
                         : compare_with_published(results, options.compare);
  if (options.csv)
    fmt::print("{}", table.to_csv());
  else if (two)
    print_run_comparison(table);
  else
    print_published_comparison(table);
  if (!options.out.empty()) write(table, options.out);
}

}  // namespace

void add_compare(CLI::App& app) {
  auto [command, options] = add_command<CompareArguments>(
      app, "compare", "Compare runs with published numbers, or with each other", run);
  auto& compare = options->compare;
  command
      ->add_option("results", options->results,
                   "Folder of a sweep (RESULTS/NAME) or of 'qkscope analyze'")
      ->required();
  auto* other = command->add_option("other", options->other,
                                    "Second folder: compare the two with each other");
  command
      ->add_option("--published", compare.published,
                   "Published numbers: a set that comes with qkscope, or your own CSV file")
      ->type_name("smollm3|models|profiles|pooled|small_models|FILE")
      ->capture_default_str()
      ->excludes(other);
  command
      ->add_option("--as", compare.as,
                   "Published name to compare a single run with (default: its label); for pooled "
                   "numbers, the scope to compare all runs with")
      ->excludes(other);
  command
      ->add_option("--only", compare.only,
                   "Only the run with this label; repeatable (default: all)")
      ->allow_extra_args(false)
      ->excludes(other);
  command
      ->add_flag("--all-sources", compare.every_source,
                 "Use every source of a number, not only the most exact")
      ->excludes(other);
  command->add_option("--out", options->out,
                      "Folder to write compare.csv into (default: print only)");
  command->add_flag("--csv", options->csv, "Print CSV with every digit");
  command->footer(
      "± of published numbers is the uncertainty from rounding or from reading a figure; ± of ours "
      "is the standard error over texts. se is the standard error of the difference, ratio the "
      "difference divided by se.");
}

}  // namespace qkscope::cli
