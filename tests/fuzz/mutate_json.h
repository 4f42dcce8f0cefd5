// Damage to a JSON text that leaves it JSON: mutations then reach what reads its values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace qkscope {

// The text up to its last brace or bracket is taken as JSON and one of its values is removed,
// doubled, replaced by an awkward one or by another of its values; what follows stays. A text that
// is no JSON comes back as it is. The result depends on text and seed alone.
std::string mutate_json(std::string_view text, std::uint64_t seed);

}  // namespace qkscope
