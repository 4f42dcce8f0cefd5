#include "cli/run_options.h"

#include <algorithm>
#include <tuple>

#include <fmt/format.h>

#include "cli/shard.h"
#include "qkscope/experimental/text.h"
#include "qkscope/forward.h"

namespace qkscope::cli {

void ComputeArguments::add_to(CLI::App& command) {
  command.add_option("--device", device,
                     "auto, cpu, cuda or cuda:N; several share the texts with the same results: "
                     "all (every GPU), or a list as cuda:0,cuda:1 (default: the file's)");
  command.add_option("--dtype", dtype,
                     "On CUDA: float32, float16 or bfloat16 (default: the file's)");
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

void ComputeArguments::add_words(ArgumentList& list) const {
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
  command
      .add_option("--set", overrides,
                  "Override a field: capture.min_bucket_size=256, stats.first=8; repeatable")
      ->allow_extra_args(false);
  compute.add_to(command);
  command.add_option("--limit", limit, "Only the first N examples")->check(positive());
  command
      .add_option("--ids", ids,
                  "What identifies an example: column (dataset.id_column) or row (its number)")
      ->check(CLI::IsMember({"column", "row"}));
}

void RunArguments::add_to(CLI::App& command) {
  command.add_option("--config", config, "Configuration of the run (YAML)")->required();
  add_run_to(command);
  command.add_option("--shard", shard,
                     "i/n: every n-th example, from the i-th (0 to n-1); auto: i and n from Slurm, "
                     "Kubernetes or QKSCOPE_SHARD_INDEX and _COUNT; see qkscope merge");
  command.add_flag("--overwrite", overwrite, "Start again and replace existing files");
  command.add_flag("--dry-run", dry_run, "Print the plan and its cost, and write nothing");
  command.add_flag("--json", json, "Print the plan or the result as one JSON object");
  common.add_to(command);
}

std::vector<std::string> RunArguments::run_arguments() const {
  ArgumentList list({"--config", config});
  list.add("--set", overrides);
  compute.add_words(list);
  list.add("--limit", limit);
  list.add("--ids", ids);
  return list.words();
}

Shard RunArguments::chosen_shard() const {
  Shard chosen;
  if (!shard.empty()) std::tie(chosen.index, chosen.count) = parse_shard(shard);
  return chosen;
}

void RunArguments::apply_to(DatasetConfig& dataset) const {
  if (limit > 0) dataset.max_samples = std::min(limit, dataset.max_samples.value_or(limit));
  if (!ids.empty()) dataset.number_rows = ids == "row";
}

std::string shown_devices(Device first, std::size_t count) {
  const auto name = device_name(first);
  return count > 1 ? fmt::format("{} and {} more", name, count - 1) : name;
}

}  // namespace qkscope::cli
