#include "cli/sweep_options.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/error.h"
#include "cli/numbers.h"
#include "qkscope/experimental/text.h"

namespace qkscope::cli {
namespace {

// Parses a speed in FLOP/s such as "90G" or "400T": a number with an optional SI prefix.
double parse_flops(const std::string& text) {
  constexpr std::string_view kPowers = "KMGTP";
  char* end = nullptr;
  double value = std::strtod(text.c_str(), &end);
  const std::string unit = end;
  const auto power = unit.size() == 1 ? kPowers.find(unit[0]) : std::string_view::npos;
  if (power != std::string_view::npos) value *= std::pow(1000.0, static_cast<double>(power + 1));
  const bool known = unit.empty() || power != std::string_view::npos;
  if (!known || !std::isfinite(value) || value <= 0)
    reject("--speed: found {}, expected FLOP/s above 0 as in 90G or 400T", text);
  return value;
}

std::string describe_publication(const PlannedRun& run) {
  if (run.publish.empty()) return "";
  return fmt::format(", {} {}", run.published ? "published to" : "to publish to", run.publish);
}

std::string describe_planned_work(const PlannedRun& run) {
  std::vector<std::string> parts;
  if (run.capture)
    parts.push_back(fmt::format("to capture: {} examples, {} tokens; {} rows in {} files, {}",
                                format_number(run.capture->examples),
                                format_number(run.capture->tokens),
                                format_number(run.capture->rows), format_number(run.capture->files),
                                format_size(run.capture->bytes)));
  if (run.statistics && run.statistics->beside)
    parts.emplace_back("statistics from the same passes");
  else if (run.statistics)
    parts.push_back(fmt::format("statistics to make: {} examples, {} tokens",
                                format_number(run.statistics->examples),
                                format_number(run.statistics->tokens)));
  if (run.weights > 0)
    parts.push_back(fmt::format("weights {}{}", format_bytes(run.weights),
                                run.to_download > 0 ? " to download" : ""));
  return fmt::format("{}", fmt::join(parts, "; "));
}

void print_planned_run(const PlannedRun& run) {
  if (!run.error.empty()) {
    fmt::print("{:<16} {}\n", run.label, run.error);
  } else if (!run.capture && !run.statistics) {
    fmt::print("{:<16} captured, {}{}\n", run.label, run.analysed ? "analysed" : "to analyse",
               describe_publication(run));
  } else {
    fmt::print("{:<16} {}{}\n", run.label, describe_planned_work(run), describe_publication(run));
  }
}

// Returns the remaining work of a run in FLOP.
double remaining_flop(const PlannedRun& run) {
  return (run.capture ? run.capture->flop : 0) + (run.statistics ? run.statistics->flop : 0);
}

// Totals over all runs.
struct SweepCost {
  std::int64_t runs = 0;  // runs that load a checkpoint
  std::int64_t tokens = 0;
  std::int64_t rows = 0;
  std::int64_t bytes = 0;  // of the rows, before compression
  double flop = 0;
  std::uint64_t to_download = 0;  // bytes
  std::uint64_t disk = 0;         // peak bytes of weights on disk

  void add(const PlannedRun& run) {
    if (run.capture) {
      tokens += run.capture->tokens;
      rows += run.capture->rows;
      bytes += run.capture->bytes;
    }
    if (run.statistics && !run.statistics->beside) tokens += run.statistics->tokens;
    flop += remaining_flop(run);
    runs += run.capture || run.statistics;
    to_download += run.to_download;
    disk = std::max(disk, run.weights_on_disk);
  }
};

void print_cost(const SweepCost& cost, const CostOptions& options, bool evicts,
                const std::string& folder) {
  fmt::print("in all           {} tokens, {} rows, {} before compression, into {}\n",
             format_number(cost.tokens), format_number(cost.rows), format_size(cost.bytes), folder);
  if (cost.runs == 0) return;
  fmt::print("weights          {} to download, at most {} of them on the disk at a time{}\n",
             format_bytes(cost.to_download), format_bytes(cost.disk),
             evicts ? "" : " (with --evict less)");
  fmt::print("work             {:.3g} FLOP, {} at {}FLOP/s; download {} at {} per second\n",
             cost.flop, format_duration(cost.flop / options.flop_per_second()), options.speed,
             format_duration(static_cast<double>(cost.to_download) / options.bytes_per_second()),
             options.bandwidth);
}

}  // namespace

void SweepFileArguments::add_to(CLI::App& command) {
  start_section(command, "Configuration");
  command.add_option("file", source.file, "Sweep file (YAML)")->required();
  command
      .add_option("--out", results, "Folder or address of results; the sweep writes to OUT/NAME")
      ->capture_default_str();
  command
      .add_option("--set", source.overrides,
                  "Override a field of every capture: capture.min_bucket_size=256; repeatable")
      ->allow_extra_args(false);
  auto* every =
      command
          .add_option("--every", source.every,
                      "Every N-th of the file's `checkpoints`, and the last; 1: all (default: "
                      "the file's)")
          ->check(positive());
  command
      .add_option("--log", source.log,
                  "At most N of each phase of the file's `checkpoints`, evenly in the logarithm "
                  "of the step (default: the file's)")
      ->check(positive())
      ->excludes(every);
  command.add_option(
      "--data", source.data_folder,
      "Folder in which relative paths of the sweep are looked up first (default: none)");
  compute.add_to(command);
}

Sweep SweepFileArguments::read() {
  source.compute = compute.options();
  return Sweep::read(source, results);
}

std::vector<std::string> SweepFileArguments::arguments() const {
  ArgumentList list({source.file, "--out", results});
  list.add("--set", source.overrides);
  list.add("--every", source.every);
  list.add("--log", source.log);
  list.add("--data", source.data_folder);
  compute.append_arguments(list);
  return list.words();
}

void CostOptions::add_to(CLI::App& command) {
  command
      .add_option(
          "--speed", speed,
          "FLOP/s from which --dry-run estimates the time: 90G, 400T (one H200 in bfloat16)")
      ->capture_default_str();
  command
      .add_option("--bandwidth", bandwidth,
                  "Bytes per second from which --dry-run estimates downloads")
      ->capture_default_str();
}

void CostOptions::check() const {
  flop_per_second();
  bytes_per_second();
}

double CostOptions::flop_per_second() const {
  return parse_flops(speed);
}

double CostOptions::bytes_per_second() const {
  return static_cast<double>(parse_bytes(bandwidth, "--bandwidth"));
}

void print_sweep_plan(const std::vector<PlannedRun>& runs, const CostOptions& options, bool evicts,
                      const std::string& folder) {
  SweepCost cost;
  std::int64_t failed = 0;
  ErrorKind kind = ErrorKind::bad_input;
  for (const auto& run : runs) {
    print_planned_run(run);
    if (!run.error.empty()) {
      ++failed;
      if (run.error_kind == ErrorKind::failure) kind = ErrorKind::failure;
    }
    cost.add(run);
  }
  print_cost(cost, options, evicts, folder);
  if (failed > 0) throw Error(kind, fmt::format("{} runs cannot be done as they are", failed));
}

}  // namespace qkscope::cli
