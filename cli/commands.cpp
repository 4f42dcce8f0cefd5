#include "cli/commands.h"

namespace qkscope::cli {

void add_commands(CLI::App& app) {
  add_analyze(app);
  add_pca(app);
  add_rotation(app);
  add_plasticity(app);
  add_synth(app);
}

}  // namespace qkscope::cli
