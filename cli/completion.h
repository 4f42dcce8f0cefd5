// Shell completion scripts and the manual page. Both are generated from the option table, so
// completion works without starting the program.
#pragma once

#include <string>

#include "cli/option_table.h"

namespace qkscope::cli {

std::string bash_completion(const CommandRow& program);
std::string zsh_completion(const CommandRow& program);
std::string fish_completion(const CommandRow& program);

// Returns the manual page qkscope(1) in man(7) format.
std::string manual_page(const CommandRow& program);

}  // namespace qkscope::cli
