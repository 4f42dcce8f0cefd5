// Command-line options of the analyses, generated from the table in experimental/options.h.
#pragma once

#include <array>
#include <initializer_list>
#include <string>

#include <CLI/CLI.hpp>

#include "qkscope/experimental/options.h"

namespace qkscope::cli {

// Adds the options of the given groups to the command. Parsing the command line stores their values
// in `options`, which must outlive the parse.
void add_analysis_options(CLI::App& command, AnalyzeOptions& options,
                          std::initializer_list<OptionGroup> groups);

// Parses the value of --components, the numbers of two principal components: "2,3".
std::array<int, 2> parse_components(const std::string& text);

}  // namespace qkscope::cli
