// Seeded mutations of an input, identical on all platforms.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace qkscope {

// Applies a few random edits to one input of the corpus: bit flips, removed, duplicated or spliced
// pieces, extreme numbers, and mutations that keep the syntax (mutate_structure.h). The result
// depends only on corpus and seed. The corpus must not be empty.
std::string mutate(const std::vector<std::string>& corpus, std::uint64_t seed);

}  // namespace qkscope
