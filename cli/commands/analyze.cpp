#include <memory>

#include "cli/analysis_command.h"
#include "cli/commands.h"
#include "cli/error.h"
#include "qkscope/experimental/text.h"

namespace qkscope::cli {
namespace {

void choose(const std::string& only, AnalyzeOptions& options) {
  if (only.empty()) return;
  options.pca = options.rotation = options.plasticity = false;
  for (const auto& name : split(only, ',')) {
    if (name == "pca") {
      options.pca = true;
    } else if (name == "rotation") {
      options.rotation = true;
    } else if (name == "plasticity") {
      options.plasticity = true;
    } else {
      bad_input("--only: '{}' is not an analysis; expected pca, rotation, plasticity", name);
    }
  }
}

}  // namespace

void add_analyze(CLI::App& app) {
  auto* command =
      app.add_subcommand("analyze", "Analyse every head of a capture, or of statistics");
  const auto shared = std::make_shared<AnalysisCommand>();
  const auto only = std::make_shared<std::string>();
  shared->add_input_options(*command);
  command->add_option("--only", *only, "Some of pca,rotation,plasticity (default: all)");
  shared->add_pca_options(*command);
  shared->add_rotation_options(*command);
  shared->add_planes_option(*command);
  shared->add_plasticity_options(*command);
  shared->add_statistics_options(*command);
  command->callback([shared, only] {
    choose(*only, shared->options());
    shared->run();
  });
}

}  // namespace qkscope::cli
