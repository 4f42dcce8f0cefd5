#include "cli/sweep_command.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/logging.h"
#include "cli/stop_signal.h"
#include "qkscope/experimental/text.h"
#include "qkscope/figures.h"

namespace qkscope::cli {
namespace {

using RunOutcome = RunReport::Outcome;
using Publication = RunReport::Publication;

// Returns the labels of the runs whose outcome or publication status is `value`.
template <typename Value>
std::vector<std::string> labels_with(const std::vector<RunReport>& reports, Value value) {
  std::vector<std::string> labels;
  for (const auto& report : reports) {
    if constexpr (std::is_same_v<Value, RunOutcome>) {
      if (report.outcome == value) labels.push_back(report.label);
    } else if (report.publication == value) {
      labels.push_back(report.label);
    }
  }
  return labels;
}

// A column of the printed overview.
struct OverviewColumn {
  const char* title;
  const char* measure;
  int digits;
  bool percent = false;
};
constexpr OverviewColumn kOverviewColumns[] = {{"r_q", "r_q", 2},
                                               {"|r_k|", "abs_r_k", 2},
                                               {"PC0", "pc0_variance", 2},
                                               {"pos", "position_dominated", 0, true},
                                               {"Q-pos", "q_positional", 0, true},
                                               {"K-pos", "k_positional", 0, true},
                                               {"content", "content_focused", 0, true},
                                               {"mixed", "mixed", 0, true},
                                               {"pos axis", "position_dominated_axis", 0, true},
                                               {"con axis", "content_focused_axis", 0, true},
                                               {"bias", "bias_strength", 5},
                                               {"ap", "ap_profile_overall", 3},
                                               {"ap first", "ap_first20", 3},
                                               {"ap drop", "ap_drop", 3}};
constexpr int kNumberWidth = 8;

std::string format_value(const OverviewColumn& column, double value) {
  if (std::isnan(value)) return "-";
  if (column.percent) return fmt::format("{:.0f} %", 100 * value);
  return fmt::format("{:.{}f}", value, column.digits);
}

// Prints one row of the overview table. `suffix` selects the variant of every measure: ""
// (estimate), "_se" (standard error) or "_exact" (over every token).
void print_row(const OverviewRow& row, const std::string& title, std::size_t width,
               const std::string& suffix) {
  fmt::print("{:<{}}", title, width);
  for (const auto& column : kOverviewColumns)
    fmt::print("{:>{}}", format_value(column, row.value(column.measure + suffix)),
               kNumberWidth + 1);
  fmt::print("\n");
}

// Whether the run also has statistics over every token.
bool has_exact_values(const OverviewRow& row) {
  return std::any_of(std::begin(kOverviewColumns), std::end(kOverviewColumns),
                     [&](const OverviewColumn& column) {
                       return !std::isnan(row.value(std::string(column.measure) + "_exact"));
                     });
}

constexpr char kErrorTitle[] = "  error";
constexpr char kExactTitle[] = "  exact";

void print_layer_group(const std::vector<OverviewRow>& rows, const std::string& layers,
                       const char* title) {
  std::size_t width = 5;
  std::int64_t heads = 0;
  for (const auto& row : rows) {
    width = std::max(width, row.label.size());
    if (has_exact_values(row)) width = std::max(width, sizeof kExactTitle);
    if (row.layers == layers) heads = std::max(heads, row.heads);
  }
  if (heads == 0) return;
  fmt::print("\n{} ({} heads)\n{:<{}}", title, heads, "run", width);
  for (const auto& column : kOverviewColumns) fmt::print("{:>{}}", column.title, kNumberWidth + 1);
  fmt::print("\n");
  for (const auto& row : rows) {
    if (row.layers != layers) continue;
    print_row(row, row.label, width, "");
    if (!has_exact_values(row)) continue;
    print_row(row, kErrorTitle, width, "_se");
    print_row(row, kExactTitle, width, "_exact");
  }
}

// Prints one overview table per group of layers (all, RoPE, NoPE, ...), with a line per run.
void print_overview(const std::vector<OverviewRow>& rows) {
  print_layer_group(rows, "all", "All layers");
  print_layer_group(rows, "rope", "Layers with RoPE");
  print_layer_group(rows, "nope", "Layers without RoPE (NoPE)");
  print_layer_group(rows, "full", "Layers with full attention");
  print_layer_group(rows, "sliding", "Layers with a sliding window");
}

void print_outcome_counts(const std::vector<RunReport>& reports, double seconds) {
  const auto count = [&](RunOutcome outcome) { return labels_with(reports, outcome).size(); };
  fmt::print("{} runs in {}: {} done, {} were done before, {} failed", reports.size(),
             format_duration(seconds), count(RunOutcome::done), count(RunOutcome::already_done),
             count(RunOutcome::failed));
  const auto elsewhere = labels_with(reports, RunOutcome::elsewhere);
  if (!elsewhere.empty()) fmt::print(", at work elsewhere: {}", fmt::join(elsewhere, ", "));
  const auto unfinished = labels_with(reports, RunOutcome::unfinished);
  if (!unfinished.empty()) fmt::print(", unfinished: {}", fmt::join(unfinished, ", "));
  fmt::print("\n");
  const auto published = labels_with(reports, Publication::published).size();
  const auto before = labels_with(reports, Publication::already_published).size();
  if (published + before > 0)
    fmt::print("{} published, {} were published before\n", published, before);
}

// Throws an error that lists the runs in `labels`; does nothing if `labels` is empty. `by_machine`:
// whether some run failed for a reason other than bad input.
void require_none(const std::vector<std::string>& labels, std::size_t all, bool by_machine,
                  const char* what, const char* remedy) {
  if (!labels.empty())
    throw Error(by_machine ? ErrorKind::failure : ErrorKind::bad_input,
                fmt::format("{} of {} runs {}: {}; {}", labels.size(), all, what,
                            fmt::join(labels, ", "), remedy));
}

void throw_for_problems(const std::vector<RunReport>& reports, SweepPart part) {
  const bool failure = std::ranges::any_of(reports, [](const RunReport& report) {
    return report.outcome == RunOutcome::failed && report.error_kind == ErrorKind::failure;
  });
  require_none(labels_with(reports, RunOutcome::failed), reports.size(), failure, "failed",
               "run the same command to try them again");
  // Throw, so that this cluster task fails: otherwise Slurm would start the next task, which needs
  // the runs that another process has not finished.
  if (part == SweepPart::merge || part == SweepPart::analyse)
    require_none(labels_with(reports, RunOutcome::elsewhere), reports.size(), true,
                 "are at work in another task", "run the same command when that task has ended");
  require_none(labels_with(reports, RunOutcome::unfinished), reports.size(), true,
               "are missing in the tables", "sweep or submit again to finish them");
  const bool unpublished = std::ranges::any_of(reports, [](const RunReport& report) {
    return report.publication == Publication::failed &&
           report.publish_error_kind == ErrorKind::failure;
  });
  require_none(labels_with(reports, Publication::failed), reports.size(), unpublished,
               "are not published",
               "their results are whole, and the same command tries to publish them again");
}

// Returns whether this process writes the tables of the sweep (SweepPart all or tables).
bool writes_tables(const SweepCommand& command) {
  return command.options.part == SweepPart::all || command.options.part == SweepPart::tables;
}

void draw_sweep_figures(const std::string& folder, bool quiet) {
  const std::string out = folder + "/figures";
  const Drawn drawn =
      draw_figures({.results = folder, .out = out, .only = "", .quiet = quiet, .again = false});
  if (quiet) return;
  fmt::print("{} figures in {}{}\n", drawn.figures.size(), out,
             drawn.up_to_date ? ", drawn before from the same results" : "");
  for (const auto* name : {"position_signal", "taxonomy_evolution"})
    if (std::ranges::count(drawn.figures, name) > 0) fmt::print("{}/{}.png\n", out, name);
  fmt::print("report: {}\n", drawn.report);
}

// Draws the figures, and redraws them if another machine has uploaded newer tables in the meantime.
void draw_and_upload_figures(const SweepCommand& command) {
  const bool quiet = command.options.quiet;
  do {
    draw_sweep_figures(command.sweep.folder(), quiet);
  } while (!command.sweep.put_figures(quiet));
}

// Reports failed runs even if the figures cannot be drawn.
void finish_sweep(const SweepCommand& command, const std::vector<RunReport>& reports) {
  std::exception_ptr not_drawn;
  try {
    if (command.figures && writes_tables(command)) draw_and_upload_figures(command);
  } catch (const Error& error) {
    not_drawn = std::current_exception();
    log_line(LogLevel::error, fmt::format("figures: {}", error.what()));
  }
  throw_for_problems(reports, command.options.part);
  if (not_drawn) std::rethrow_exception(not_drawn);
}

}  // namespace

void run_sweep_command(const SweepCommand& command) {
  using Clock = std::chrono::steady_clock;
  const auto started = Clock::now();
  const auto reports = command.sweep.run(command.options);
  const bool quiet = command.options.quiet;
  if (!labels_with(reports, RunOutcome::interrupted).empty()) {
    if (!quiet) fmt::print("stopped; run the same command to continue\n");
    return end_by_stop_signal();
  }
  if (!quiet) {
    print_outcome_counts(reports, std::chrono::duration<double>(Clock::now() - started).count());
    if (writes_tables(command)) {
      print_overview(command.sweep.overview());
      fmt::print("\nresults in {}\n", command.sweep.place());
    }
  }
  finish_sweep(command, reports);
}

}  // namespace qkscope::cli
