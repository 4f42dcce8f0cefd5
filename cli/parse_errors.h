// Error messages for command lines that cannot be parsed.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace qkscope::cli {

// Returns an error message for an invalid command line, and the help command on a second line.
// `app` is the program whose parse threw `error`.
std::string parse_error_message(const CLI::App& app, const CLI::ParseError& error);

}  // namespace qkscope::cli
