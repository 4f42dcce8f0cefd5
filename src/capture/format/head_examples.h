// Reads which texts the rows of a head file belong to, without reading the vectors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace qkscope {

// Returns HeadRows::example() of each row.
std::vector<std::int64_t> read_head_examples(const std::string& path);

}  // namespace qkscope
