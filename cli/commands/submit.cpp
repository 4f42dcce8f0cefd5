// qkscope submit: runs a sweep or a capture as Slurm jobs.
#include <filesystem>
#include <map>
#include <variant>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/error.h"
#include "cli/numbers.h"
#include "cli/run_options.h"
#include "cli/stop_signal.h"
#include "cli/sweep_options.h"
#include "qkscope/capture.h"
#include "qkscope/experimental/cluster.h"
#include "qkscope/experimental/text.h"

namespace qkscope::cli {
namespace {

namespace fs = std::filesystem;

// Fields of the `slurm` section of a sweep file that --slurm KEY=VALUE can set.
using SlurmField = std::variant<std::string SlurmOptions::*, std::int64_t SlurmOptions::*>;
const std::map<std::string, SlurmField> kSlurmFields = {{"array_limit", &SlurmOptions::array_limit},
                                                        {"partition", &SlurmOptions::partition},
                                                        {"account", &SlurmOptions::account},
                                                        {"gpus", &SlurmOptions::gpus},
                                                        {"cpus", &SlurmOptions::cpus},
                                                        {"time", &SlurmOptions::time},
                                                        {"memory", &SlurmOptions::memory},
                                                        {"retries", &SlurmOptions::retries}};

void set_slurm_field(const std::string& key, const std::string& value, SlurmOptions& options) {
  const auto field = kSlurmFields.find(key);
  if (field == kSlurmFields.end())
    reject("--slurm {}: there is no such key; expected {} or environment", key,
           join_keys(kSlurmFields));
  if (const auto* number = std::get_if<std::int64_t SlurmOptions::*>(&field->second))
    options.** number = parse_integer(value, "--slurm " + key);
  else
    options.*std::get<std::string SlurmOptions::*>(field->second) = value;
}

// Slurm options of the command line, which override the values of the sweep file.
struct SlurmArguments {
  std::int64_t shards = 0;
  std::vector<std::string> fields;  // KEY=VALUE

  void add_to(CLI::App& command) {
    command
        .add_option("--shards", shards,
                    "Divide the texts of every checkpoint among so many tasks (default: 1)")
        ->check(integer_between(1, kMostShards));
    command
        .add_option("--slurm", fields,
                    "KEY=VALUE as in the section `slurm` of a sweep file: partition, account, gpus "
                    "(1 or h100:1), cpus (of a task, also its threads), time (minutes, HH:MM:SS or "
                    "DAYS-HH:MM:SS), memory (64G), array_limit (concurrent tasks of a checkpoint), "
                    "retries (of a failed task; 3), environment (a line of shell before the "
                    "program); repeatable")
        ->allow_extra_args(false);
  }

  SlurmOptions apply_to(SlurmOptions options) const {
    if (shards > 0) options.shards = shards;
    std::vector<std::string> environment;
    for (const auto& text : fields) {
      const auto equals = text.find('=');
      if (equals == std::string::npos || equals == 0)
        reject("--slurm: found '{}', expected KEY=VALUE (time=2:00:00)", text);
      const auto key = text.substr(0, equals);
      const auto value = text.substr(equals + 1);
      if (key == "environment")
        environment.push_back(value);
      else
        set_slurm_field(key, value, options);
    }
    if (!environment.empty()) options.environment = environment;
    return options;
  }
};

// Options of both subcommands.
struct SubmitArguments {
  CommonOptions common;
  SlurmArguments slurm;
  CostOptions cost;
  bool dry_run = false;

  void add_to(CLI::App& command) {
    start_section(command, "Slurm");
    slurm.add_to(command);
    command.add_flag("--dry-run", dry_run,
                     "Print the plan and the scripts without submitting; needs no Slurm");
    cost.add_to(command);
  }
};

TaskProgram task_program(std::vector<std::string> arguments) {
  return {.program = fs::read_symlink("/proc/self/exe").string(),
          .arguments = std::move(arguments),
          .folder = fs::current_path().string()};
}

std::int64_t count_tasks(const ClusterPlan& plan) {
  std::int64_t tasks = 0;
  for (const auto& job : plan.jobs) tasks += job.tasks;
  return tasks;
}

std::string dependency_names(const ClusterPlan& plan, const ClusterJob& job) {
  if (job.after.empty()) return "";
  constexpr std::size_t kMostShown = 3;
  std::vector<std::string> names;
  for (const auto before : job.after) {
    if (names.size() == kMostShown) {
      names.push_back(fmt::format("{} more", job.after.size() - kMostShown));
      break;
    }
    names.push_back(plan.jobs[before].name);
  }
  return fmt::format(", after {}", fmt::join(names, ", "));
}

std::string format_task_cost(const ClusterJob& job, const CostOptions& cost) {
  if (job.flop <= 0) return "";
  return fmt::format(", {} and {} each", format_duration(job.flop / cost.flop_per_second()),
                     format_size(job.bytes));
}

void print_jobs(const ClusterPlan& plan, const CostOptions& cost) {
  for (const auto& job : plan.jobs)
    fmt::print("{:<24} {} task{}{}{}\n", job.name, format_number(job.tasks),
               job.tasks == 1 ? "" : "s", format_task_cost(job, cost), dependency_names(plan, job));
  fmt::print("in all {} jobs, {} tasks; work at {}FLOP/s; logs will be in {}/logs\n",
             format_number(std::ssize(plan.jobs)), format_number(count_tasks(plan)), cost.speed,
             plan.folder);
}

void print_scripts(const ClusterPlan& plan) {
  for (const auto& job : plan.jobs) {
    std::vector<std::string> after;
    for (const auto before : job.after) after.push_back("ID_OF_" + plan.jobs[before].name);
    fmt::print(
        "\n# {}/scripts/{}.sh: sbatch --parsable{}\n{}", plan.folder, job.name,
        after.empty() ? " --hold" : fmt::format(" --dependency=afterany:{}", fmt::join(after, ":")),
        job.script);
  }
}

void submit(const ClusterPlan& plan, const SubmitArguments& options, const std::string& next) {
  const bool quiet = options.common.quiet;
  if (!quiet) print_jobs(plan, options.cost);
  if (options.dry_run) return print_scripts(plan);
  const auto jobs = submit_jobs(plan, &watch_stop_signals());
  if (quiet || jobs.empty()) return;
  fmt::print("submitted: jobs {} to {}\n{}", jobs.front().id, jobs.back().id, next);
}

// ---- qkscope submit sweep

struct SubmitSweepArguments : SubmitArguments {
  SweepFileArguments file;
  bool no_figures = false;
  bool no_publish = false;
};

void run(SubmitSweepArguments& options) {
  options.cost.check();
  const auto sweep = options.file.read();
  auto arguments = options.file.arguments();
  arguments.insert(arguments.begin(), "sweep");
  if (options.no_figures) arguments.emplace_back("--no-figures");
  if (options.no_publish) arguments.emplace_back("--no-publish");
  const auto plan =
      plan_jobs(sweep, options.slurm.apply_to(sweep.slurm()), task_program(std::move(arguments)));
  if (options.dry_run) print_sweep_plan(plan.runs, options.cost, true, sweep.folder());
  submit(plan, options,
         fmt::format("how far it is: qkscope sweep {} --out {} --status\n",
                     options.file.source.file, options.file.results));
}

void add_submit_sweep(CLI::App& submit) {
  auto [command, options] = add_command<SubmitSweepArguments>(
      submit, "sweep",
      "Every checkpoint of a sweep: capture, merge, analyse; then tables and figures", run);
  options->file.add_to(*command);
  command->add_flag("--no-figures", options->no_figures, "Tables only");
  command->add_flag("--no-publish", options->no_publish,
                    "Do not publish, even if the file has a section `publish`");
  options->add_to(*command);
}

// ---- qkscope submit capture

struct SubmitCaptureArguments : SubmitArguments {
  RunArguments capture;
};

void run(SubmitCaptureArguments& options) {
  options.cost.check();
  auto config = read_capture_config(options.capture.config, options.capture.overrides);
  options.capture.apply_to(config.dataset);
  fetch_capture_inputs(config, {.weights = false, .quiet = options.common.quiet});
  auto arguments = options.capture.run_arguments();
  arguments.insert(arguments.begin(), "capture");
  const auto plan = plan_jobs(make_plan(config, options.capture.compute.options()),
                              options.slurm.apply_to({}), task_program(std::move(arguments)));
  if (plan.jobs.empty()) {
    if (!options.common.quiet)
      fmt::print("{}: this capture is finished; nothing to do\n", config.output.data_root);
    return;
  }
  submit(plan, options, "how far it is: squeue --me\n");
}

void add_submit_capture(CLI::App& submit) {
  auto [command, options] = add_command<SubmitCaptureArguments>(
      submit, "capture", "One capture: its texts divided among tasks, then merged", run);
  command->add_option("config", options->capture.config, "The capture's configuration (YAML)")
      ->required();
  options->capture.add_run_to(*command);
  options->add_to(*command);
}

}  // namespace

void add_submit(CLI::App& app) {
  auto* command = app.add_subcommand("submit", "Submit a sweep or a capture to Slurm");
  command->require_subcommand(1);
  add_submit_sweep(*command);
  add_submit_capture(*command);
}

}  // namespace qkscope::cli
