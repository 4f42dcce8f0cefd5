// Mutations that keep a text valid JSON, so that they reach the code that interprets the values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace qkscope {

// Parses the text up to its last brace or bracket as JSON and removes, duplicates or replaces one
// value; the rest of the text stays. Text that is not JSON is returned unchanged. The result
// depends only on text and seed.
std::string mutate_json(std::string_view text, std::uint64_t seed);

}  // namespace qkscope
