#include "cli/run_options.h"

#include <algorithm>
#include <tuple>

#include <fmt/format.h>

#include "cli/argument_list.h"
#include "cli/shard.h"
#include "qkscope/experimental/text.h"
#include "qkscope/forward.h"

namespace qkscope::cli {

void RunArguments::add_run_to(CLI::App& command) {
  command
      .add_option("--set", overrides,
                  "Override a field: capture.min_bucket_size=256, stats.first=8; repeatable")
      ->allow_extra_args(false);
  auto* one =
      command.add_option("--device", device, "auto, cpu, cuda or cuda:N (default: the file's)");
  command
      .add_option("--devices", devices,
                  "Several that share the texts: all (every GPU), or a list as cuda:0,cuda:1; "
                  "results are those of one")
      ->excludes(one);
  command.add_option("--dtype", dtype,
                     "On CUDA: float32, float16 or bfloat16 (default: the file's)");
  command.add_option("--device-memory", device_memory,
                     "The most to take of a GPU's memory, as in 8GiB (default: what is free); "
                     "weights that do not fit stream");
  command
      .add_option("--batch-tokens", batch_tokens,
                  "On CUDA: consecutive texts run together up to this many tokens, and at least "
                  "inference.batch_size of them (default: 32768, 65536 where weights stream)")
      ->check(positive());
  command.add_flag("--deterministic", deterministic,
                   "On CUDA: every text runs alone, so that its numbers do not depend on what runs "
                   "beside it; on the CPU they never do");
  command.add_option("--limit", limit, "Only the first N examples")->check(positive());
  command
      .add_option("--ids", ids,
                  "What tells examples apart: column (dataset.id_column) or row (their number)")
      ->check(CLI::IsMember({"column", "row"}));
}

void RunArguments::add_to(CLI::App& command) {
  command.add_option("--config", config, "The run's configuration (YAML)")->required();
  add_run_to(command);
  command.add_option("--shard", shard,
                     "i/n: every n-th example, from the i-th (0 to n-1); auto: i and n from Slurm, "
                     "Kubernetes or QKSCOPE_SHARD_INDEX and _COUNT; see qkscope merge");
  command.add_flag("--overwrite", overwrite, "Start again, replacing what is there");
  command.add_flag("--dry-run", dry_run, "Print the plan and its cost, and write nothing");
  command.add_flag("--json", json, "Print the plan or the result as one JSON object");
  common.add_to(command);
}

std::vector<std::string> RunArguments::run_arguments() const {
  ArgumentList list({"--config", config});
  list.add("--set", overrides);
  list.add("--device", device);
  list.add("--devices", devices);
  list.add("--dtype", dtype);
  list.add("--device-memory", device_memory);
  list.add("--batch-tokens", batch_tokens);
  list.add_flag("--deterministic", deterministic);
  list.add("--limit", limit);
  list.add("--ids", ids);
  return list.words();
}

ComputeOptions RunArguments::compute() const {
  ComputeOptions compute{.device = device,
                         .dtype = {},
                         .device_memory = 0,
                         .batch_tokens = batch_tokens,
                         .deterministic = deterministic};
  if (!devices.empty()) compute.devices = split(devices, ',');
  if (!dtype.empty()) compute.dtype = parse_compute_dtype(dtype, "--dtype");
  if (!device_memory.empty()) compute.device_memory = parse_bytes(device_memory, "--device-memory");
  return compute;
}

Shard RunArguments::chosen_shard() const {
  Shard chosen;
  if (!shard.empty()) std::tie(chosen.index, chosen.count) = parse_shard(shard);
  return chosen;
}

std::string shown_devices(Device first, std::size_t count) {
  const auto name = device_name(first);
  return count > 1 ? fmt::format("{} and {} more", name, count - 1) : name;
}

void RunArguments::apply_to(DatasetConfig& dataset) const {
  if (limit > 0) dataset.max_samples = std::min(limit, dataset.max_samples.value_or(limit));
  if (!ids.empty()) dataset.number_rows = ids == "row";
}

}  // namespace qkscope::cli
