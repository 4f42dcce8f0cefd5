// qkscope analyze: analyses every head of a capture. qkscope options: prints the reference of all
// analysis options.
#include <chrono>

#include <fmt/format.h>
#include <malloc.h>

#include "cli/analysis_options.h"
#include "cli/analysis_summary.h"
#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/error.h"
#include "cli/logging.h"
#include "cli/output_folder.h"
#include "qkscope/experimental/text.h"

namespace qkscope::cli {
namespace {

struct AnalyzeArguments {
  CommonOptions common;
  AnalyzeOptions options;
  std::string out;
  std::string only;
  bool overwrite = false;
  const CLI::App* program = nullptr;
};

// The analysis of each head allocates and frees large blocks of the same sizes. Keeping freed
// memory in the process avoids page-faulting every block again for each head (3 % of the CPU time).
void keep_freed_memory() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the maximum that glibc accepts
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_TOP_PAD, 16 << 20);
}

void choose_analyses(const std::string& only, AnalyzeOptions& options) {
  if (only.empty()) return;
  options.pca = options.rotation = options.plasticity = options.geometry = false;
  for (const auto& name : split(only, ',')) {
    if (name == "pca") {
      options.pca = true;
    } else if (name == "rotation") {
      options.rotation = true;
    } else if (name == "plasticity") {
      options.plasticity = true;
    } else if (name == "geometry") {
      options.geometry = true;
    } else {
      reject("--only: '{}' is not an analysis; expected pca, rotation, plasticity, geometry", name);
    }
  }
}

void print_next_steps(const std::string& results, const CLI::App& program) {
  const auto folder = quote_for_shell(results);
  const auto below = [&](const char* name) { return quote_for_shell(results + "/" + name); };
  fmt::print("\nnext:\n  qkscope figures {} --out {}\n", folder, below("figures"));
  const auto is_report = [](const CLI::App* command) { return command->get_name() == "report"; };
  if (!program.get_subcommands(is_report).empty())
    fmt::print("  qkscope report {} --out {}\n", folder, below("report.html"));
}

// Analyses all heads and writes the tables. If some heads failed, throws after the tables of the
// other heads are written, so that the command exits with an error code.
void run(AnalyzeArguments& arguments) {
  const auto started = std::chrono::steady_clock::now();
  auto& options = arguments.options;
  keep_freed_memory();
  choose_analyses(arguments.only, options);
  check_output_folder(arguments.out);
  if (!arguments.overwrite) check_results_folder(arguments.out, options);
  options.quiet = arguments.common.quiet;
  const AnalysisRun run = analyze_capture(options);
  write_results(arguments.out, run, options, arguments.overwrite);
  if (!options.quiet) print_analysis(run, options);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - started;
  info("{} heads in {:.1f} s; results in {}", run.heads.size(), taken.count(), arguments.out);
  report_failed_heads(run, arguments.out);
  if (!options.quiet) print_next_steps(arguments.out, *arguments.program);
}

}  // namespace

void add_analyze(CLI::App& app) {
  auto [command, arguments] = add_command<AnalyzeArguments>(
      app, "analyze", "Analyse every head of a capture or of statistics", run);
  arguments->program = &app;
  command
      ->add_option("data_root", arguments->options.data_root,
                   "A capture: a folder of l{LL}h{HH}{q|k}, REPO@BRANCH on the Hugging Face Hub, "
                   "or an address (s3://bucket/path); or statistics, likewise")
      ->required();
  command
      ->add_option("--out", arguments->out, "Folder or address for the results (made if missing)")
      ->required();
  command->add_option("--only", arguments->only, "Run only these analyses (default: all)")
      ->type_name("pca,rotation,plasticity,geometry");
  command->add_flag("--overwrite", arguments->overwrite,
                    "Replace results of other options in the folder (default: refuse)");
  using enum OptionGroup;
  add_analysis_options(*command, arguments->options,
                       {capture, rows, pca, rotation, plasticity, geometry, statistics});

  app.add_subcommand("options", "Print docs/reference/analysis-options.md")
      ->group("")
      ->callback([] { fmt::print("{}", analysis_options_markdown()); });
}

}  // namespace qkscope::cli
