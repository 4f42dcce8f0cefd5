// What the library says goes to standard error, as do progress lines; results go to standard
// output.
#pragma once

namespace qkscope::cli {

// quiet: errors only, no progress; normal: also warnings and information; verbose: also debug
// lines.
enum class Verbosity { quiet, normal, verbose };

void set_up_logging(Verbosity verbosity);

}  // namespace qkscope::cli
