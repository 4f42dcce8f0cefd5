// Names that come out of files and patterns that users write.
#pragma once

#include <string>
#include <string_view>

#include "qkscope/experimental/text.h"

namespace qkscope {

// `*` stands for any run of characters (also none), `?` for one character.
bool glob_match(std::string_view pattern, std::string_view text);

// In double quotes for a message, everything printable() escapes escaped, cut after 200 bytes:
// names that come out of a file may hold anything.
std::string in_quotes(std::string_view text);

}  // namespace qkscope
