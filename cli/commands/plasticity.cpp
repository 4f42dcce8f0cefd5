#include <memory>

#include "cli/analysis_command.h"
#include "cli/commands.h"

namespace qkscope::cli {

void add_plasticity(CLI::App& app) {
  auto* command = app.add_subcommand("plasticity", "Attention plasticity of each head");
  const auto shared = std::make_shared<AnalysisCommand>();
  shared->add_input_options(*command);
  shared->add_plasticity_options(*command);
  auto& options = shared->options();
  options.pca = options.rotation = options.plasticity = false;
  options.plasticity = true;
  command->callback([shared] { shared->run(); });
}

}  // namespace qkscope::cli
