#include <memory>

#include "cli/analysis_command.h"
#include "cli/commands.h"

namespace qkscope::cli {

void add_rotation(CLI::App& app) {
  auto* command = app.add_subcommand(
      "rotation",
      "The drift and separation plane of each head, and planes that turn with position");
  const auto shared = std::make_shared<AnalysisCommand>();
  shared->add_input_options(*command);
  shared->add_rotation_options(*command);
  shared->add_planes_option(*command);
  auto& options = shared->options();
  options.pca = options.rotation = options.plasticity = false;
  options.rotation = true;
  command->callback([shared] { shared->run(); });
}

}  // namespace qkscope::cli
