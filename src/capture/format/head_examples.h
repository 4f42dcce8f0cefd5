// Which texts the rows of a head file are from, without reading its vectors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace qkscope {

// What HeadRows::example gives for each row.
std::vector<std::int64_t> read_head_examples(const std::string& path);

}  // namespace qkscope
