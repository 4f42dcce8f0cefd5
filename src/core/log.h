// Logging to standard error through spdlog; results go to standard output, never through here.
#pragma once

#include <spdlog/spdlog.h>

namespace qkscope {

enum class Verbosity { quiet, normal, verbose };

// quiet: errors only; normal: also warnings and information; verbose: also debug lines.
void set_up_logging(Verbosity verbosity);

namespace log = spdlog;

}  // namespace qkscope
