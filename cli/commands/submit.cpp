// qkscope submit: a sweep or a capture as jobs of a cluster that runs Slurm.
#include <filesystem>
#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/numbers.h"
#include "cli/run_options.h"
#include "cli/stop_signal.h"
#include "cli/sweep_cost.h"
#include "cli/sweep_options.h"
#include "qkscope/capture.h"
#include "qkscope/experimental/cluster.h"
#include "qkscope/experimental/text.h"

namespace qkscope::cli {
namespace {

namespace fs = std::filesystem;

// What stands on the command line goes before what the sweep's file says.
class SlurmArguments {
 public:
  void add_to(CLI::App& command) {
    const auto number = [&](const char* name, std::int64_t SlurmOptions::*value, const char* help) {
      given_.push_back({command.add_option(name, options_.*value, help),
                        [value](const auto& from, auto& to) { to.*value = from.*value; }});
    };
    const auto text = [&](const char* name, std::string SlurmOptions::*value, const char* help) {
      given_.push_back({command.add_option(name, options_.*value, help),
                        [value](const auto& from, auto& to) { to.*value = from.*value; }});
    };
    number("--shards", &SlurmOptions::shards,
           "The texts of every checkpoint are dealt to so many tasks (default: 1)");
    number("--array-limit", &SlurmOptions::array_limit,
           "Tasks of one checkpoint at a time (default: all)");
    text("--partition", &SlurmOptions::partition, "Of the cluster (default: the cluster's)");
    text("--account", &SlurmOptions::account, "That is charged (default: the cluster's)");
    text("--gpus", &SlurmOptions::gpus, "Of a task that runs a model: 1, or h100:1");
    number("--cpus", &SlurmOptions::cpus, "Of a task; it takes as many threads");
    text("--time", &SlurmOptions::time, "Limit of a task: minutes, HH:MM:SS or DAYS-HH:MM:SS");
    text("--memory", &SlurmOptions::memory, "Of a task, as in 64G");
    number("--retries", &SlurmOptions::retries,
           "How often a task that was killed, failed or came to its time limit is requeued "
           "(default: 3)");
    given_.push_back({command
                          .add_option("--environment", options_.environment,
                                      "A line of shell before the program, as in 'module load "
                                      "cuda'; repeatable")
                          ->allow_extra_args(false),
                      [](const auto& from, auto& to) { to.environment = from.environment; }});
  }

  SlurmOptions over(SlurmOptions file) const {
    for (const auto& given : given_)
      if (given.option->count() > 0) given.copy(options_, file);
    return file;
  }

 private:
  struct Given {
    CLI::Option* option;
    std::function<void(const SlurmOptions&, SlurmOptions&)> copy;
  };
  SlurmOptions options_;
  std::vector<Given> given_;
};

// What both commands share.
struct SubmitArguments {
  CommonOptions common;
  SlurmArguments slurm;
  CostOptions cost;
  bool dry_run = false;

  void add_to(CLI::App& command) {
    slurm.add_to(command);
    command.add_flag("--dry-run", dry_run,
                     "Print the plan and the scripts, and submit nothing; needs no Slurm");
    cost.add_to(command);
    common.add_to(command);
  }
};

TaskProgram program_for(std::vector<std::string> arguments) {
  return {.program = fs::read_symlink("/proc/self/exe").string(),
          .arguments = std::move(arguments),
          .folder = fs::current_path().string()};
}

std::int64_t count_tasks(const ClusterPlan& plan) {
  std::int64_t tasks = 0;
  for (const auto& job : plan.jobs) tasks += job.tasks;
  return tasks;
}

std::string names_before(const ClusterPlan& plan, const ClusterJob& job) {
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

std::string expected(const ClusterJob& job, const CostOptions& cost) {
  if (job.flop <= 0) return "";
  return fmt::format(", {} and {} each", format_duration(job.flop / cost.flop_per_second()),
                     bytes(job.bytes));
}

void print_jobs(const ClusterPlan& plan, const CostOptions& cost) {
  for (const auto& job : plan.jobs)
    fmt::print("{:<24} {} task{}{}{}\n", job.name, number(job.tasks), job.tasks == 1 ? "" : "s",
               expected(job, cost), names_before(plan, job));
  fmt::print("in all {} jobs, {} tasks; work at {}FLOP/s; logs will be in {}/logs\n",
             number(std::ssize(plan.jobs)), number(count_tasks(plan)), cost.speed, plan.folder);
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

struct SubmitSweep : SubmitArguments {
  SweepOptionsOfFile file;
  bool no_figures = false;
  bool no_publish = false;
};

void run(SubmitSweep& options) {
  options.common.apply();
  options.cost.flop_per_second();  // or complain before the work
  const auto sweep = options.file.read();
  auto arguments = options.file.arguments();
  arguments.insert(arguments.begin(), "sweep");
  if (options.no_figures) arguments.emplace_back("--no-figures");
  if (options.no_publish) arguments.emplace_back("--no-publish");
  const auto plan =
      plan_jobs(sweep, options.slurm.over(sweep.slurm()), program_for(std::move(arguments)));
  if (options.dry_run) print_sweep_plan(plan.runs, options.cost, true, sweep.folder());
  submit(plan, options,
         fmt::format("how far it is: qkscope status {} --out {}\n", options.file.source.file,
                     options.file.results));
}

void add_submit_sweep(CLI::App& submit) {
  auto options = std::make_shared<SubmitSweep>();
  auto* command = submit.add_subcommand(
      "sweep", "Every checkpoint of a sweep: capture, merge, analyse; then tables and figures");
  options->file.add_source_to(*command);
  options->file.add_compute_to(*command);
  command->add_flag("--no-figures", options->no_figures, "Tables only");
  command->add_flag("--no-publish", options->no_publish,
                    "Do not publish, whatever the file's section publish says");
  options->add_to(*command);
  command->callback([options] { run(*options); });
}

// ---- qkscope submit capture

struct SubmitCapture : SubmitArguments {
  RunArguments capture;
};

void run(SubmitCapture& options) {
  options.common.apply();
  options.cost.flop_per_second();
  auto config = read_capture_config(options.capture.config, options.capture.overrides);
  options.capture.apply_to(config.dataset);
  fetch_capture_inputs(config, {.weights = false, .quiet = options.common.quiet});
  auto arguments = options.capture.run_arguments();
  arguments.insert(arguments.begin(), "capture");
  const auto plan = plan_jobs(make_plan(config, options.capture.compute()), options.slurm.over({}),
                              program_for(std::move(arguments)));
  if (plan.jobs.empty()) {
    if (!options.common.quiet)
      fmt::print("{}: this capture is finished; nothing to do\n", config.output.data_root);
    return;
  }
  submit(plan, options, "how far it is: squeue --me\n");
}

void add_submit_capture(CLI::App& submit) {
  auto options = std::make_shared<SubmitCapture>();
  auto* command =
      submit.add_subcommand("capture", "One capture: its texts over several tasks, then merged");
  command->add_option("config", options->capture.config, "The capture's configuration (YAML)")
      ->required();
  options->capture.add_run_to(*command);
  options->add_to(*command);
  command->callback([options] { run(*options); });
}

}  // namespace

void add_submit(CLI::App& app) {
  auto* command = app.add_subcommand("submit", "Give a sweep or a capture to Slurm");
  command->require_subcommand(1);
  add_submit_sweep(*command);
  add_submit_capture(*command);
}

}  // namespace qkscope::cli
