#include "study/cluster/slurm.h"

#include <algorithm>
#include <fstream>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "base/core/error.h"
#include "base/core/log.h"
#include "base/core/project.h"
#include "base/core/text.h"
#include "base/io/child_process.h"
#include "base/io/folder.h"
#include "base/io/json.h"

namespace qkscope {

// The file job.sh.in: the part of a batch script below the #SBATCH lines. Slurm sends USR1 to the
// script alone; to end a job, Slurm sends TERM to every process. The script forwards the first
// signal as USR1: the first USR1 makes qkscope shut down, a second one kills qkscope.
namespace embedded {
extern const char job_sh[];
}

// JSON conversions; the field names are the keys of submission.json.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SubmittedJob, name, id, tasks)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PlannedRunSize, label, examples, tokens)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SlurmSubmission, shards, complete, jobs, runs)

namespace {

using StringList = std::vector<std::string>;

// Parts of Slurm messages about an unreachable controller, as opposed to a rejected request.
constexpr std::string_view kUnreachable[] = {"Unable to contact", "timed out",     "Zero Bytes",
                                             "Connection",        "Communication", "authentication",
                                             "temporarily",       "Munge"};

bool is_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

bool is_safe_sbatch_name(std::string_view text) {
  constexpr std::string_view kAllowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-";
  return !text.empty() && text.front() != '-' &&
         text.find_first_not_of(kAllowed) == std::string_view::npos;
}

// Slurm accepts a comma-separated list and uses the first partition with free nodes.
bool is_partition_list(std::string_view text) {
  const auto names = split(text, ',');
  return std::ranges::all_of(names, is_safe_sbatch_name);
}

// Returns true for a GPU count, NUMBER or TYPE:NUMBER, for example "2" or "h100:2".
bool is_gpu_count(std::string_view text) {
  const auto colon = text.rfind(':');
  const bool typed = colon != std::string_view::npos;
  return (!typed || is_safe_sbatch_name(text.substr(0, colon))) &&
         is_digits(typed ? text.substr(colon + 1) : text);
}

// Slurm time limits: "90", "90:00", "1:30:00", "1-12", "1-12:30:00".
bool is_time_limit(std::string_view text) {
  const auto dash = text.find('-');
  const bool days = dash != std::string_view::npos;
  const auto parts = split(days ? text.substr(dash + 1) : text, ':');
  const auto is_part = [](std::string_view part) { return is_digits(part) && part.size() <= 6; };
  return (!days || is_part(text.substr(0, dash))) && parts.size() <= 3 &&
         std::ranges::all_of(parts, is_part) &&
         text.find_first_of("123456789") != std::string_view::npos;
}

// Memory size with an optional unit, for example "64G".
bool is_memory_size(std::string_view text) {
  if (!text.empty() && std::string_view("KMGT").find(text.back()) != std::string_view::npos)
    text.remove_suffix(1);
  return is_digits(text);
}

bool is_single_line(std::string_view text) {
  return text.find_first_of(std::string_view("\n\r\0", 3)) == std::string_view::npos;
}

// A Slurm option with a text value: its key in a sweep file, its field and its validator.
struct SlurmTextOption {
  const char* key;
  std::string SlurmOptions::*value;
  bool (*valid)(std::string_view);
  const char* expected;
};
constexpr SlurmTextOption kSlurmTexts[] = {
    {"partition", &SlurmOptions::partition, is_partition_list, "the name of a partition"},
    {"account", &SlurmOptions::account, is_safe_sbatch_name, "the name of an account"},
    {"gpus", &SlurmOptions::gpus, is_gpu_count, "a number of GPUs, or TYPE:NUMBER as in h100:1"},
    {"time", &SlurmOptions::time, is_time_limit, "minutes, HH:MM:SS or DAYS-HH:MM:SS"},
    {"memory", &SlurmOptions::memory, is_memory_size, "a size with K, M, G or T as in 64G"}};

struct SlurmNumberOption {
  const char* key;
  std::int64_t SlurmOptions::*value;
  std::int64_t least;
  std::int64_t most;
};
constexpr std::int64_t kMostTasks = 10'000;
constexpr SlurmNumberOption kSlurmNumbers[] = {
    {"shards", &SlurmOptions::shards, 1, kMostTasks},
    {"array_limit", &SlurmOptions::array_limit, 0, kMostTasks},
    {"cpus", &SlurmOptions::cpus, 0, 4096},
    {"retries", &SlurmOptions::retries, 0, 1000}};

// Command-line name of a YAML key: "array_limit" becomes "--array-limit".
std::string cli_flag(std::string key) {
  std::replace(key.begin(), key.end(), '_', '-');
  return "--" + key;
}

// Returns the last error line after "error: ", for example "Batch job submission failed: ...".
std::string extract_last_error(const std::string& err) {
  constexpr std::string_view kMark = "error: ";
  std::string last = "it did not say why";
  for (const auto& line : split(err, '\n')) {
    const auto at = line.find(kMark);
    const auto text =
        trim_white_space(at == std::string::npos ? line : line.substr(at + kMark.size()));
    if (!text.empty()) last = text;
  }
  return last;
}

// Runs a Slurm command and returns its standard output. Throws an error that begins with `what`: a
// failure if the controller cannot be reached, else a bad-input error.
std::string run_slurm_command(const StringList& command, const std::string& what) {
  const auto output = run_process(command);
  if (!output.found)
    reject(
        "'{}' is not on the PATH: expected a machine of a cluster that runs Slurm; --dry-run shows "
        "plan and scripts without it",
        command.front());
  if (output.status == 0) return output.out;
  const bool unreachable = std::ranges::any_of(kUnreachable, [&](std::string_view text) {
    return output.err.find(text) != std::string::npos;
  });
  throw Error(unreachable ? ErrorKind::failure : ErrorKind::bad_input,
              fmt::format("{}: {}", what, extract_last_error(output.err)));
}

// Calls `run` with at most 100 ids at a time, to keep command lines short.
template <typename Run>
void for_each_batch_of_ids(const StringList& ids, Run run) {
  constexpr std::ptrdiff_t kIdsPerCommand = 100;
  for (auto begin = ids.begin(); begin != ids.end();) {
    const auto end = begin + std::min(kIdsPerCommand, ids.end() - begin);
    run(StringList(begin, end));
    begin = end;
  }
}

// Submits a script with sbatch and returns the job id. The job starts after the jobs `after` have
// ended; a `held` job waits for 'scontrol release'. Throws an Error of kind failure if the Slurm
// controller cannot be reached, and a bad-input error if Slurm refuses the job.
std::string submit_script(const std::string& file, const StringList& after, bool held) {
  StringList command = {"sbatch", "--parsable"};
  if (held) command.emplace_back("--hold");
  if (!after.empty())
    command.push_back(fmt::format("--dependency=afterany:{}", fmt::join(after, ":")));
  command.push_back(file);
  const auto output = run_slurm_command(command, "sbatch refused " + file);
  auto id = trim_white_space(split(output, ';').front());  // before ";CLUSTER", if any
  if (!is_digits(id))
    throw_failure("sbatch {}: found {}, expected the id of a job", file, quote_text(output));
  return id;
}

void cancel_jobs(const StringList& ids) {
  for_each_batch_of_ids(ids, [](StringList some) {
    some.insert(some.begin(), {"scancel", "--quiet"});
    run_slurm_command(some, "the jobs cannot be cancelled");
  });
}

// Writes the #SBATCH lines of a script. Paths are quoted, because they may contain spaces.
std::string sbatch_directives(const BatchScript& task, const SlurmOptions& options) {
  std::string lines;
  const auto add = [&](const std::string& option) { lines += "#SBATCH " + option + "\n"; };
  add("--job-name=" + task.job);
  add(fmt::format("--chdir=\"{}\"", task.folder));
  add(fmt::format("--output=\"{}\"", task.log));
  add("--open-mode=append");
  if (task.tasks > 1)
    add(fmt::format("--array=0-{}{}", task.tasks - 1,
                    options.array_limit > 0 ? fmt::format("%{}", options.array_limit) : ""));
  if (!options.partition.empty()) add("--partition=" + options.partition);
  if (!options.account.empty()) add("--account=" + options.account);
  if (task.runs_model && !options.gpus.empty()) add("--gpus=" + options.gpus);
  if (options.cpus > 0) add(fmt::format("--cpus-per-task={}", options.cpus));
  if (!options.memory.empty()) add("--mem=" + options.memory);
  if (!options.time.empty()) add("--time=" + options.time);
  add("--requeue");
  // Send USR1 before the time limit: earlier by a quarter of the limit, but at most 120 seconds.
  const auto quarter = options.time.empty() ? 120 : parse_time_limit_seconds(options.time) / 4;
  add(fmt::format("--signal=B:USR1@{}", std::clamp<std::int64_t>(quarter, 1, 120)));
  return lines;
}

bool is_error_line(std::string_view line) {
  const auto has = [&](std::string_view mark) { return line.find(mark) != std::string_view::npos; };
  // Ignore Slurm's message about a script that requeues itself: the script logs the reason.
  if (has("DUE TO JOB REQUEUE")) return false;
  constexpr std::string_view kMarks[] = {"error:", "CANCELLED", "oom-kill", "Killed", "requeued, "};
  return std::ranges::any_of(kMarks, has);
}

// Cancels the held jobs of an interrupted submission. Throws a bad-input error if jobs of a
// complete submission are queued, and an Error of kind failure if the Slurm controller is
// unreachable.
void cancel_interrupted_submission(const SubmissionFolder& folder, const std::string& path) {
  const auto earlier = folder.read_submission().value_or(SlurmSubmission{});
  const auto tasks = list_queued_tasks(earlier.job_ids());
  if (tasks.empty()) return;
  if (!earlier.complete) {
    log::info("cancelling {} held jobs of a submission that was broken off", earlier.jobs.size());
    return cancel_jobs(earlier.job_ids());
  }
  const auto& first = tasks.front();
  const auto job = std::ranges::find(earlier.jobs, first.job, &SubmittedJob::id);
  reject(
      "{}: it is submitted already, and {} of its tasks are in the queue (job {}, {}, is {}); "
      "wait for them, or end them with 'scancel {}' and so on for the ids in submission.json",
      path, tasks.size(), first.job, job->name, first.state, first.job);
}

}  // namespace

SlurmOptions read_slurm_options(YamlSection section) {
  SlurmOptions options;
  for (const auto& number : kSlurmNumbers) {
    const auto found = section.integer(number.key, number.least);
    if (found && *found > number.most)
      section.reject_value(number.key, fmt::format("at most {}", number.most));
    if (found) options.*number.value = *found;
  }
  for (const auto& text : kSlurmTexts) {
    const auto found = section.text(text.key);
    if (found && !text.valid(*found)) section.reject_value(text.key, text.expected);
    if (found) options.*text.value = *found;
  }
  const auto lines = section.node("environment");
  if (!lines.IsNull() && !lines.IsSequence())
    section.reject_value("environment", "a list of lines of shell");
  for (const auto& line : lines) {
    if (!line.IsScalar() || !is_single_line(line.Scalar()))
      section.reject_value("environment", "one line of shell");
    options.environment.push_back(line.Scalar());
  }
  section.reject_unknown_keys();
  return options;
}

void check_slurm_options(const SlurmOptions& options) {
  for (const auto& number : kSlurmNumbers)
    if (const auto found = options.*number.value; found < number.least || found > number.most)
      reject("{}: found {}, expected {} to {}", cli_flag(number.key), found, number.least,
             number.most);
  for (const auto& text : kSlurmTexts)
    if (const auto& found = options.*text.value; !found.empty() && !text.valid(found))
      reject("{}: found {}, expected {}", cli_flag(text.key), quote_text(found), text.expected);
  for (const auto& line : options.environment)
    if (!is_single_line(line))
      reject("--environment: found {}, expected {}", quote_text(line), "one line of shell");
}

std::vector<QueuedTask> list_queued_tasks(const StringList& jobs) {
  // Query all jobs of the user: squeue fails for the id of a job that ended long ago.
  const auto output =
      run_slurm_command({"squeue", "--noheader", "--array", fmt::format("--user={}", ::getuid()),
                         "--format=%F|%K|%T|%r"},
                        "squeue");
  const std::set<std::string> wanted(jobs.begin(), jobs.end());
  std::vector<QueuedTask> tasks;
  for (const auto& line : split(output, '\n')) {
    auto fields = split(line, '|');
    std::ranges::transform(fields, fields.begin(), trim_white_space);
    if (fields.size() < 4 || !wanted.contains(fields[0])) continue;
    tasks.push_back({.job = fields[0],
                     .index = is_digits(fields[1]) ? parse_integer(fields[1], "squeue") : 0,
                     .state = fields[2],
                     .reason = fields[3] == "None" ? "" : fields[3]});
  }
  return tasks;
}

std::int64_t parse_time_limit_seconds(const std::string& time) {
  const auto dash = time.find('-');
  const bool days = dash != std::string::npos;
  const auto parts = split(days ? time.substr(dash + 1) : time, ':');
  auto numbers = to_vector(parts, [](const auto& part) { return parse_integer(part, "--time"); });
  // Slurm time limit: with days, the other parts are hours:minutes:seconds. Without days, one part
  // is minutes and two parts are minutes:seconds.
  if (!days && numbers.size() < 3) numbers.insert(numbers.begin(), 0);
  numbers.resize(3, 0);
  const auto whole = days ? parse_integer(time.substr(0, dash), "--time") : 0;
  return ((whole * 24 + numbers[0]) * 60 + numbers[1]) * 60 + numbers[2];
}

std::string render_batch_script(const BatchScript& task, const SlurmOptions& options) {
  auto words = task.command;
  std::ranges::transform(words, words.begin(), quote_for_shell);
  if (task.tasks > 1)
    words.push_back(fmt::format("--shard \"$SLURM_ARRAY_TASK_ID/{}\"", task.tasks));
  std::string script =
      "#!/bin/bash\n" + sbatch_directives(task, options) + "\n# " + task.what + "\n";
  if (!options.environment.empty())
    script += fmt::format("\n{}\n", fmt::join(options.environment, "\n"));
  return script + "\n" +
         fmt::format(fmt::runtime(embedded::job_sh), fmt::arg("command", fmt::join(words, " ")),
                     fmt::arg("never", task.retries_failures ? "0 | 2" : "0 | 1 | 2"),
                     fmt::arg("retries", options.retries));
}

PlannedRunSize planned_run_size(const PlannedRun& run) {
  if (run.capture) return {run.label, run.capture->examples, run.capture->tokens};
  if (run.statistics) return {run.label, run.statistics->examples, run.statistics->tokens};
  return {.label = run.label};
}

std::vector<std::string> SlurmSubmission::job_ids() const {
  return to_vector(jobs, &SubmittedJob::id);
}

std::string SubmissionFolder::log_path_pattern(const std::string& job, bool array) const {
  return fmt::format("{}/logs/{}.{}.log", path_, job, array ? "%A_%a" : "%j");
}

std::string SubmissionFolder::log_path(const SubmittedJob& job, std::int64_t task) const {
  const auto index = job.tasks > 1 ? fmt::format("_{}", task) : "";
  return fmt::format("{}/logs/{}.{}{}.log", path_, job.name, job.id, index);
}

void SubmissionFolder::create() const {
  for (const auto* folder : {"/scripts", "/logs"}) make_folders(path_ + folder);
}

FileLock SubmissionFolder::lock() const {
  FileLock lock(path_ + "/lock", FileLock::LockMode::exclusive, FileLock::Blocking::no);
  if (!lock.is_held())
    reject("{}: another 'qkscope submit' is at work here; wait until it ends", path_);
  return lock;
}

std::optional<SlurmSubmission> SubmissionFolder::read_submission() const {
  if (!path_exists(submission_file())) return {};
  const Json json = load_json(submission_file());
  try {
    return json.get<SlurmSubmission>();
  } catch (const Json::exception& error) {
    reject("{}: not a list of jobs as 'qkscope submit' writes it: {}", submission_file(),
           error.what());
  }
}

void SubmissionFolder::write_submission(const SlurmSubmission& submission) const {
  write_json_file(submission_file(), submission, 1);
}

std::string find_error_line(std::string_view log) {
  std::string last;
  std::string error;
  for (const auto& line : split(log, '\n')) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    last = line;
    if (is_error_line(line)) error = line;
  }
  return printable(error.empty() ? last : error);
}

std::string read_error_line(const std::string& file) {
  constexpr std::size_t kTailBytes = 64 << 10;
  std::ifstream in(file, std::ios::binary | std::ios::ate);
  if (!in) return "";
  const auto size = static_cast<std::size_t>(in.tellg());
  std::string text(std::min(size, kTailBytes), '\0');
  in.seekg(static_cast<std::streamoff>(size - text.size()));
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  return find_error_line(text);
}

std::vector<SubmittedJob> submit_jobs(const ClusterPlan& plan, const std::atomic<bool>* stop) {
  return translate_exceptions([&] {
    const SubmissionFolder folder(plan.folder);
    folder.create();
    const auto lock = folder.lock();
    cancel_interrupted_submission(folder, plan.folder);
    for (const auto& job : plan.jobs) write_file(folder.script_path(job.name), job.script);
    SlurmSubmission submission{.shards = plan.shards, .jobs = {}, .runs = {}};
    for (const auto& run : plan.runs) submission.runs.push_back(planned_run_size(run));
    try {
      StringList held;  // jobs without dependencies: no job starts before their release
      for (const auto& job : plan.jobs) {
        if (stop != nullptr && stop->load()) throw_failure("stopped");
        StringList after;
        for (const auto earlier : job.after) after.push_back(submission.jobs[earlier].id);
        const auto id = submit_script(folder.script_path(job.name), after, after.empty());
        if (after.empty()) held.push_back(id);
        submission.jobs.push_back({.name = job.name, .id = id, .tasks = job.tasks});
        folder.write_submission(submission);  // after a kill the next submission cancels held jobs
      }
      for_each_batch_of_ids(held, [](const StringList& some) {
        run_slurm_command({"scontrol", "release", fmt::format("{}", fmt::join(some, ","))},
                          "the jobs cannot be released");
      });
    } catch (const Error& error) {
      const auto ids = submission.job_ids();
      auto result =
          fmt::format("the {} jobs before it are cancelled, nothing is submitted", ids.size());
      if (ids.empty()) result = "nothing was submitted";
      try {
        cancel_jobs(ids);
      } catch (const Error& again) {
        result = fmt::format(
            "{} jobs before it are held and could not be cancelled ({}): the next submission does "
            "it",
            ids.size(), again.what());
      }
      throw Error(error.kind(), fmt::format("{}; {}", error.what(), result));
    }
    submission.complete = true;
    folder.write_submission(submission);
    return submission.jobs;
  });
}

}  // namespace qkscope
