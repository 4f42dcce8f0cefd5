// Text functions for use inside the library.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "qkscope/experimental/text.h"

namespace qkscope {

// Returns whether the whole text matches: `*` matches any characters, `?` exactly one.
bool glob_match(std::string_view pattern, std::string_view text);

// Converts A to Z to lower case, independent of the locale. All other bytes are unchanged.
std::string ascii_lower(std::string_view text);

// Quotes text from a file for an error message: in double quotes, escaped like printable(), and
// truncated after 200 bytes.
std::string in_quotes(std::string_view text);

// Removes white space at both ends.
std::string trim_white_space(std::string_view text);

// Lists the first `most` names for an error message: "a, b and 3 more", or "nothing" if empty.
std::string format_name_list(const std::vector<std::string>& names, std::size_t most = 8);

// Returns the bytes in Base64 with padding (RFC 4648).
std::string encode_base64(std::span<const std::byte> bytes);

}  // namespace qkscope
