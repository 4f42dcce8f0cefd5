#include "cli/sweep_options.h"

#include "cli/argument_list.h"
#include "cli/common_options.h"
#include "qkscope/experimental/text.h"
#include "qkscope/forward.h"
#include "qkscope/tensor.h"

namespace qkscope::cli {

void SweepOptionsOfFile::add_source_to(CLI::App& command) {
  command.add_option("file", source.file, "The sweep (YAML)")->required();
  command
      .add_option("--out", results, "Folder or address of results; the sweep's name goes below it")
      ->capture_default_str();
  command
      .add_option("--set", source.overrides,
                  "Override a field of every capture: capture.min_bucket_size=256; repeatable")
      ->allow_extra_args(false);
  auto* every = command
                    .add_option("--every", source.every,
                                "Every N-th of the file's `checkpoints`, and the last; 1: all")
                    ->check(positive());
  command
      .add_option("--log", source.log,
                  "At most N of each phase of the file's `checkpoints`, evenly in the logarithm "
                  "of the step")
      ->check(positive())
      ->excludes(every);
  command.add_option("--data", source.data_folder,
                     "Folder that relative paths in the sweep are looked up in first");
}

// As for one capture; here they hold for every run.
void SweepOptionsOfFile::add_compute_to(CLI::App& command) {
  auto& compute = source.compute;
  auto* one = command.add_option("--device", compute.device,
                                 "auto, cpu, cuda or cuda:N (default: the file's)");
  command
      .add_option("--devices", devices,
                  "Several that share the texts of each run: all (every GPU), or cuda:0,cuda:1")
      ->excludes(one);
  command.add_option("--dtype", dtype,
                     "On CUDA: float32, float16 or bfloat16 (default: the file's)");
  command.add_option("--device-memory", device_memory,
                     "The most to take of a GPU's memory, as in 8GiB (default: what is free)");
  command
      .add_option("--batch-tokens", compute.batch_tokens,
                  "On CUDA: consecutive texts run together up to this many tokens")
      ->check(positive());
  command.add_flag("--deterministic", compute.deterministic, "On CUDA: every text runs alone");
}

Sweep SweepOptionsOfFile::read() {
  auto& compute = source.compute;
  if (!devices.empty()) compute.devices = split(devices, ',');
  if (!dtype.empty()) compute.dtype = parse_compute_dtype(dtype, "--dtype");
  if (!device_memory.empty()) compute.device_memory = parse_bytes(device_memory, "--device-memory");
  return Sweep::read(source, results);
}

std::vector<std::string> SweepOptionsOfFile::arguments() const {
  ArgumentList list({source.file, "--out", results});
  list.add("--set", source.overrides);
  list.add("--every", source.every);
  list.add("--log", source.log);
  list.add("--data", source.data_folder);
  list.add("--device", source.compute.device);
  list.add("--devices", devices);
  list.add("--dtype", dtype);
  list.add("--device-memory", device_memory);
  list.add("--batch-tokens", source.compute.batch_tokens);
  list.add_flag("--deterministic", source.compute.deterministic);
  return list.words();
}

}  // namespace qkscope::cli
