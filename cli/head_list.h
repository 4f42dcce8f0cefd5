// Layers and heads as people write them on a command line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "qkscope/captures.h"

namespace qkscope::cli {

// "0,4-7" is 0, 4, 5, 6, 7.
std::vector<int> parse_layers(const std::string& text);

// "3.5,3.6", or as pairs "(3,5),(3,6)": query heads 5 and 6 of layer 3.
std::vector<HeadId> parse_heads(const std::string& text, std::string_view option);

}  // namespace qkscope::cli
