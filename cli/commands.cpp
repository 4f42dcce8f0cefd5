#include "cli/commands.h"

namespace qkscope::cli {

void add_commands(CLI::App& app) {
  add_capture(app);
  add_dataset(app);
  add_inspect(app);
  add_merge(app);
  add_tokenize(app);
  add_trace(app);
}

}  // namespace qkscope::cli
