// qkscope export: converts statistics to calibration files for other programs.

#include <filesystem>

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

void run(ExportArguments& arguments) {
  // If the output path is an existing file, check its parent folder; --overwrite controls whether
  // the file may be replaced.
  const std::filesystem::path out(arguments.options.out);
  check_local_output(std::filesystem::is_regular_file(out)
                         ? std::filesystem::absolute(out).parent_path().string()
                         : out.string());
  auto options = arguments.options;
  options.statistics = fetch_stored(options.statistics, arguments.common.quiet);
  info("{} in {}", options.to, export_statistics(options));
}

}  // namespace

void add_export(CLI::App& app) {
  auto [command, arguments] = add_command<ExportArguments>(
      app, "export", "Write statistics as calibration files that other programs load", run);
  auto& options = arguments->options;
  command
      ->add_option("statistics", options.statistics,
                   "Folder or address of a finished 'qkscope stats'")
      ->required();
  command->add_option("--to", options.to, "Format to write")
      ->type_name(fmt::format("{}", fmt::join(export_names(), "|")))
      ->required();
  command->add_option("--out", options.out, "File or folder to write")
      ->type_name("PATH")
      ->required();
  command->add_flag("--overwrite", options.overwrite, "Replace existing files");
  command
      ->add_option("--set", options.set,
                   "k-ranges: rows to use: all, body, or first (the first tokens of documents)")
      ->type_name("all|body|first")
      ->capture_default_str();
  command->add_option(
      "--kvpress-name", options.kvpress_name,
      "q-filters: write OUT/nthngdy/NAME_qfilt, the path that kvpress reads (default: write "
      "OUT)");
  command->add_option("--model", options.checkpoint,
                      "fp8-kv: folder or id of the model (default: the model of the statistics)");
  command
      ->add_option("--strategy", options.strategy, "fp8-kv: one scale per tensor, or per attn_head")
      ->type_name("tensor|attn_head")
      ->capture_default_str();
  command->add_option("--margin", options.margin, "fp8-kv: factor of the scales")
      ->capture_default_str();
  command->add_flag("--queries", options.queries, "fp8-kv: also write scales of queries");
}

}  // namespace qkscope::cli
