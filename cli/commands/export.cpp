// qkscope export: calibration files for other programs, from statistics.
#include <memory>

#include <fmt/ranges.h>

#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/logging.h"
#include "cli/output_folder.h"
#include "qkscope/experimental/exports.h"
#include "qkscope/experimental/store.h"

namespace qkscope::cli {
namespace {

struct ExportArguments {
  CommonOptions common;
  ExportOptions options;
};

void run(const ExportArguments& arguments) {
  arguments.common.apply();
  check_local_output(arguments.options.out);
  auto options = arguments.options;
  options.statistics = fetch_stored(options.statistics, arguments.common.quiet);
  info("{} in {}", options.to, export_statistics(options));
}

}  // namespace

void add_export(CLI::App& app) {
  auto arguments = std::make_shared<ExportArguments>();
  auto& options = arguments->options;
  auto* command = app.add_subcommand(
      "export", "Write statistics as calibration files that other programs load");
  command
      ->add_option("statistics", options.statistics,
                   "Folder or address of a finished 'qkscope stats'")
      ->required();
  command
      ->add_option("--to", options.to, fmt::format("For whom: {}", fmt::join(export_names(), ", ")))
      ->required();
  command->add_option("--out", options.out, "File or folder to write")->required();
  command->add_flag("--overwrite", options.overwrite, "Replace files that are there");
  command
      ->add_option("--set", options.set,
                   "k-ranges: over all rows, the body, or the first tokens of documents")
      ->capture_default_str();
  command->add_option("--kvpress-name", options.kvpress_name,
                      "q-filters: write OUT/nthngdy/NAME_qfilt, where kvpress looks from OUT");
  command->add_option("--checkpoint", options.checkpoint,
                      "fp8-kv: the model's folder or id (default: that of the statistics)");
  command
      ->add_option("--strategy", options.strategy,
                   "fp8-kv: a scale for each tensor, or for each attn_head")
      ->capture_default_str();
  command->add_option("--margin", options.margin, "fp8-kv: multiplies the scales")
      ->capture_default_str();
  command->add_flag("--queries", options.queries, "fp8-kv: also scales of queries");
  arguments->common.add_to(*command);
  command->callback([arguments] { run(*arguments); });
}

}  // namespace qkscope::cli
