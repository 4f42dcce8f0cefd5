// Seeded damage to an input, the same on every machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace qkscope {

// A few random edits of one input of the corpus: flipped bits, pieces cut, doubled or taken from
// another input, numbers in the text replaced by awkward ones, values of JSON changed. The result
// depends on the corpus and the seed alone. The corpus must not be empty.
std::string mutate(const std::vector<std::string>& corpus, std::uint64_t seed);

}  // namespace qkscope
