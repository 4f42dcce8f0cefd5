// Error messages for command lines that cannot be parsed.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace qkscope::cli {

// Returns what is wrong with the command line, and in a second line the command that prints help.
// `app` is the program whose parse threw `error`.
std::string parse_error_message(const CLI::App& app, const CLI::ParseError& error);

}  // namespace qkscope::cli
