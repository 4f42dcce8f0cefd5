#include <algorithm>
#include <chrono>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "cli/json.h"
#include "cli/numbers.h"
#include "cli/sweep_command.h"
#include "qkscope/experimental/cluster.h"
#include "qkscope/experimental/text.h"

namespace qkscope::cli {
namespace {

using ShardState = ShardStatus::State;

// Formats the states of shards: "5 done, 2 running, 1 waiting".
std::string format_shards(const RunStatus& run) {
  std::vector<std::string> parts;
  for (const auto state :
       {ShardState::done, ShardState::running, ShardState::unfinished, ShardState::waiting}) {
    const auto count =
        std::count_if(run.shards.begin(), run.shards.end(),
                      [&](const ShardStatus& shard) { return shard.state == state; });
    if (count > 0) parts.push_back(fmt::format("{} {}", count, to_string(state)));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string format_progress(const RunStatus& run) {
  if (run.shards.empty()) return "";
  double rate = 0;
  for (const auto& shard : run.shards)
    if (shard.state == ShardState::running) rate += shard.tokens_per_second;
  auto text = format_number(run.examples);
  if (run.all_examples > 0) text += fmt::format(" of {}", format_number(run.all_examples));
  text += " texts";
  if (rate > 0)
    text += fmt::format(", {} tokens/s", format_number(static_cast<std::int64_t>(rate)));
  return text;
}

void print_run(const RunStatus& run, std::size_t width) {
  fmt::print("{:<{}}  {:<10}", run.label, width, run.state);
  if (!run.shards.empty()) fmt::print(" shards: {}; {}", format_shards(run), format_progress(run));
  if (!run.error.empty()) fmt::print(" {}", printable(run.error));
  fmt::print("\n");
}

void print_totals(const SweepStatus& status) {
  std::int64_t tokens = 0;
  std::int64_t all = 0;
  for (const auto& run : status.runs) {
    if (run.shards.empty()) continue;
    tokens += run.tokens;
    all += std::max(run.tokens, run.all_tokens);
  }
  if (all > 0) {
    fmt::print("to capture: {} of {} tokens done", format_number(tokens), format_number(all));
    if (status.tokens_per_second > 0)
      fmt::print(", {} tokens/s",
                 format_number(static_cast<std::int64_t>(status.tokens_per_second)));
    if (status.seconds_left > 0) fmt::print(", {} left", format_duration(status.seconds_left));
    fmt::print("\n");
  }
  if (!status.slurm.empty())
    fmt::print("Slurm: {}\n", printable(status.slurm));
  else if (status.submitted)
    fmt::print("Slurm: {} tasks running, {} waiting\n", format_number(status.running),
               format_number(status.queued));
}

void print_problems(const SweepStatus& status) {
  constexpr std::size_t kMostShown = 20;
  for (std::size_t i = 0; i < std::min(kMostShown, status.problems.size()); ++i) {
    const auto& problem = status.problems[i];
    fmt::print("{}: {}\n  {}\n", problem.task, problem.line, problem.log);
  }
  if (status.problems.size() > kMostShown)
    fmt::print("and {} more tasks\n", status.problems.size() - kMostShown);
}

void print_status(const SweepStatus& status) {
  std::size_t width = 5;
  std::int64_t done = 0;
  std::int64_t failed = 0;
  for (const auto& run : status.runs) {
    width = std::max(width, run.label.size());
    done += run.state == "done";
    failed += run.state == "failed";
  }
  fmt::print("{} in {}: {} of {} runs done, {} failed\n", status.name, status.folder, done,
             status.runs.size(), failed);
  for (const auto& run : status.runs) print_run(run, width);
  print_totals(status);
  print_problems(status);
}

Json as_json(const RunStatus& run) {
  Json shards = Json::array();
  for (const auto& shard : run.shards)
    shards.push_back({{"state", to_string(shard.state)},
                      {"examples", shard.examples},
                      {"tokens", shard.tokens},
                      {"tokens_per_second", shard.tokens_per_second},
                      {"slurm", shard.slurm}});
  return {{"label", run.label},
          {"state", run.state},
          {"error", run.error},
          {"shards", shards},
          {"examples", run.examples},
          {"tokens", run.tokens},
          {"all_examples", run.all_examples},
          {"all_tokens", run.all_tokens}};
}

void print_json(const SweepStatus& status) {
  Json runs = Json::array();
  for (const auto& run : status.runs) runs.push_back(as_json(run));
  Json problems = Json::array();
  for (const auto& problem : status.problems)
    problems.push_back({{"task", problem.task}, {"line", problem.line}, {"log", problem.log}});
  const Json all = {{"name", status.name},
                    {"folder", status.folder},
                    {"submitted", status.submitted},
                    {"slurm", status.slurm},
                    {"running", status.running},
                    {"queued", status.queued},
                    {"tokens_per_second", status.tokens_per_second},
                    {"seconds_left", status.seconds_left},
                    {"runs", runs},
                    {"problems", problems}};
  fmt::print("{}\n", dump_json(all));
}

// Plans the runs of an unsubmitted sweep, so that the number of texts of each run can be shown.
std::vector<PlannedRun> plan_unsubmitted_sweep(const Sweep& sweep) {
  const auto status = sweep_status(sweep);
  if (status.submitted || status.finished()) return {};
  return sweep.plan();
}

}  // namespace

void print_sweep_status(const Sweep& sweep, double watch_seconds, bool json) {
  const auto plan = plan_unsubmitted_sweep(sweep);
  while (true) {
    const auto status = sweep_status(sweep, plan);
    const bool clears = watch_seconds > 0 && !json && ::isatty(STDOUT_FILENO) == 1;
    if (clears) fmt::print("\033[H\033[2J");
    if (json)
      print_json(status);
    else
      print_status(status);
    std::fflush(stdout);
    if (watch_seconds <= 0 || status.finished()) return;
    std::this_thread::sleep_for(std::chrono::duration<double>(watch_seconds));
  }
}

}  // namespace qkscope::cli
