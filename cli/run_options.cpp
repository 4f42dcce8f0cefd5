#include "cli/run_options.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include <fmt/format.h>

#include "cli/error.h"
#include "cli/logging.h"
#include "cli/numbers.h"
#include "qkscope/experimental/text.h"
#include "qkscope/forward.h"

namespace qkscope::cli {
namespace {

// Environment variables in which a scheduler passes the index of a task and the number of tasks.
struct Scheduler {
  const char* name;
  const char* index;
  const char* count;
  const char* first;  // index of the first task; null: 0
  const char* step;   // step between task indices; null: 1
};
constexpr Scheduler kOwn = {"qkscope's own variables", "QKSCOPE_SHARD_INDEX", "QKSCOPE_SHARD_COUNT",
                            nullptr, nullptr};
constexpr Scheduler kOthers[] = {
    {"Slurm", "SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_MIN",
     "SLURM_ARRAY_TASK_STEP"},
    {"Kubernetes", "JOB_COMPLETION_INDEX", "JOB_COMPLETIONS", nullptr, nullptr}};

std::optional<std::int64_t> environment_integer(const char* name) {
  const char* text = name == nullptr ? nullptr : std::getenv(name);
  if (text == nullptr) return {};
  return parse_integer(text, name);
}

// Reads the shard from environment variables. Returns nullopt if neither index nor count is set.
std::optional<Shard> read_scheduler_shard(const Scheduler& scheduler) {
  const auto id = environment_integer(scheduler.index);
  const auto count = environment_integer(scheduler.count);
  if (!id && !count) return {};
  if (!id || !count)
    reject("--shard auto: {} is set and {} is not; expected both",
           id ? scheduler.index : scheduler.count, id ? scheduler.count : scheduler.index);
  const auto first = environment_integer(scheduler.first).value_or(0);
  const auto step = environment_integer(scheduler.step).value_or(1);
  const bool sane = first >= 0 && step >= 1 && *id >= first && *count >= 1 && *count <= kMostShards;
  const auto index = sane ? (*id - first) / step : 0;
  if (!sane || (*id - first) % step != 0 || index >= *count)
    reject(
        "--shard auto: {}={} with {}={} (the first is {}, steps of {}) is none of {} tasks "
        "without gaps",
        scheduler.index, *id, scheduler.count, *count, first, step, *count);
  return Shard{index, *count};
}

Shard read_environment_shard() {
  if (const auto own = read_scheduler_shard(kOwn)) return *own;
  std::optional<Shard> found;
  const char* by = nullptr;
  for (const auto& scheduler : kOthers) {
    const auto shard = read_scheduler_shard(scheduler);
    if (!shard) continue;
    if (found)
      reject("--shard auto: both {} and {} say which task this is; set {} and {} to decide", by,
             scheduler.name, kOwn.index, kOwn.count);
    found = shard;
    by = scheduler.name;
  }
  if (!found)
    reject(
        "--shard auto: no scheduler says which task this is; expected {} and {}, {} and {}, "
        "or {} and {}",
        kOthers[0].index, kOthers[0].count, kOthers[1].index, kOthers[1].count, kOwn.index,
        kOwn.count);
  return *found;
}

}  // namespace

Shard parse_shard(const std::string& text) {
  if (text == "auto") return read_environment_shard();
  const auto slash = text.find('/');
  if (slash == std::string::npos)
    reject("--shard {}: expected i/n, for example 0/4, or auto", text);
  const std::int64_t index = parse_integer(text.substr(0, slash), "--shard");
  const std::int64_t count = parse_integer(text.substr(slash + 1), "--shard");
  if (index < 0 || count < 1 || index >= count || count > kMostShards)
    reject("--shard {}: i must be from 0 to n - 1, and n at most {}", text, kMostShards);
  return {index, count};
}

void ComputeArguments::add_to(CLI::App& command) {
  start_section(command, "Computation");
  command
      .add_option("--device", device,
                  "Where the model runs; several share the texts with the same results: all "
                  "(every GPU), or a list as cuda:0,cuda:1 (default: the file's)")
      ->type_name("auto|cpu|cuda|cuda:N|all");
  command.add_option("--dtype", dtype,
                     "Type of weights and activations on a GPU (default: the file's)");
  command.add_option("--device-memory", device_memory,
                     "Limit of GPU memory, as in 8GiB (default: the free memory); weights that do "
                     "not fit are streamed");
  command
      .add_option("--batch-tokens", batch_tokens,
                  "On CUDA: consecutive texts run together up to this many tokens, and at least "
                  "inference.batch_size of them (default: 32768, 65536 where weights stream)")
      ->check(positive());
  command.add_flag(
      "--deterministic", deterministic,
      "On CUDA: every text runs alone, so that its numbers do not depend on the batch; "
      "on the CPU they never do");
}

void ComputeArguments::append_arguments(ArgumentList& list) const {
  list.add("--device", device);
  list.add("--dtype", dtype);
  list.add("--device-memory", device_memory);
  list.add("--batch-tokens", batch_tokens);
  list.add_flag("--deterministic", deterministic);
}

ComputeOptions ComputeArguments::options() const {
  ComputeOptions options;
  options.batch_tokens = batch_tokens;
  options.deterministic = deterministic;
  if (device == "all" || device.find(',') != std::string::npos)
    options.devices = split(device, ',');
  else
    options.device = device;
  if (!dtype.empty()) options.dtype = parse_compute_dtype(dtype, "--dtype");
  if (!device_memory.empty()) options.device_memory = parse_bytes(device_memory, "--device-memory");
  return options;
}

void RunArguments::add_run_to(CLI::App& command) {
  start_section(command, "Configuration");
  command
      .add_option("--set", overrides,
                  "Override a field: capture.min_bucket_size=256, stats.first=8; repeatable")
      ->allow_extra_args(false);
  command.add_option("--limit", limit, "Only the first N examples (default: all)")
      ->check(positive());
  choices(command.add_option("--ids", ids,
                             "What identifies an example: column (dataset.id_column) or row (its "
                             "number) (default: the file's, or column)"),
          {"column", "row"});
  compute.add_to(command);
}

void RunArguments::add_to(CLI::App& command) {
  start_section(command, "Configuration");
  command.add_option("--config", config, "Configuration of the run (YAML)")->required();
  add_run_to(command);
  start_section(command, "Output and shards");
  command.add_option("--shard", shard,
                     "Every N-th example, from number I (0 to N-1) (default: all); auto: I and N "
                     "from Slurm, Kubernetes or QKSCOPE_SHARD_INDEX and _COUNT; see qkscope merge");
  command.add_flag("--overwrite", overwrite, "Start again and replace existing files");
  command.add_flag("--dry-run", dry_run,
                   "Print the plan, its cost and what is wrong with it, and write nothing");
  command.add_flag("--json", json, "Print the plan or the result as one JSON object");
  common.add_to(command);
}

std::vector<std::string> RunArguments::run_arguments() const {
  ArgumentList list({"--config", config});
  list.add("--set", overrides);
  compute.append_arguments(list);
  list.add("--limit", limit);
  list.add("--ids", ids);
  return list.words();
}

Shard RunArguments::chosen_shard() const {
  return shard.empty() ? Shard{} : parse_shard(shard);
}

void RunArguments::apply_to(DatasetConfig& dataset) const {
  if (limit > 0) dataset.max_samples = std::min(limit, dataset.max_samples.value_or(limit));
  if (!ids.empty()) dataset.number_rows = ids == "row";
}

void print_advice(const RunAdvice& advice) {
  if (advice.seconds)
    fmt::print("time       about {}, from a pass of {} tokens here ({:.3g} GFLOP/s)\n",
               *advice.seconds < 1 ? "a second" : format_duration(*advice.seconds),
               format_number(advice.tokens), advice.flop_per_second / 1e9);
  else
    fmt::print("time       unknown: {}\n", printable(advice.unknown));
  for (const auto& warning : advice.warnings) warn("{}", warning);
}

std::string format_cuts(const TokenizerConfig& tokenizer, std::int64_t truncated,
                        std::int64_t dropped_chunks) {
  const auto& chunk = tokenizer.chunk;
  if (chunk.size == 0)
    return fmt::format("{} cut at {}", format_number(truncated),
                       format_number(tokenizer.max_length));
  return fmt::format("in chunks of {}, {} shorter than {} dropped", format_number(chunk.size),
                     format_number(dropped_chunks), format_number(chunk.min_length));
}

std::string format_devices(Device first, std::size_t count) {
  const auto name = device_name(first);
  return count > 1 ? fmt::format("{} and {} more", name, count - 1) : name;
}

}  // namespace qkscope::cli
