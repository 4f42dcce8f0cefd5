#include "cli/sweep_options.h"

namespace qkscope::cli {

void SweepFileArguments::add_to(CLI::App& command) {
  command.add_option("file", source.file, "Sweep file (YAML)")->required();
  command
      .add_option("--out", results, "Folder or address of results; the sweep writes to OUT/NAME")
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
                     "Folder in which relative paths of the sweep are looked up first");
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
  compute.add_words(list);
  return list.words();
}

}  // namespace qkscope::cli
