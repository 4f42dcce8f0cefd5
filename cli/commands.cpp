#include "cli/commands.h"

namespace qkscope::cli {

void add_commands(CLI::App& app) {
  add_inspect(app);
  add_trace(app);
  add_dataset(app);
  add_tokenize(app);
}

}  // namespace qkscope::cli
