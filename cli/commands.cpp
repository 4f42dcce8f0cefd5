#include "cli/commands.h"

namespace qkscope::cli {

void add_commands(CLI::App&) {}

}  // namespace qkscope::cli
