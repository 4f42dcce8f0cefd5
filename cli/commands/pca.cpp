#include <memory>

#include "cli/analysis_command.h"
#include "cli/commands.h"

namespace qkscope::cli {

void add_pca(CLI::App& app) {
  auto* command = app.add_subcommand(
      "pca", "Combined principal components of queries and keys, and the taxonomy of heads");
  const auto shared = std::make_shared<AnalysisCommand>();
  shared->add_input_options(*command);
  shared->add_pca_options(*command);
  auto& options = shared->options();
  options.pca = options.rotation = options.plasticity = false;
  options.pca = true;
  command->callback([shared] { shared->run(); });
}

}  // namespace qkscope::cli
