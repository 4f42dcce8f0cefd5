// "--shard i/n": one of n equal parts of a dataset, or of a sweep; "--shard auto": the part that
// the scheduler's variables name.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace qkscope::cli {

// (index, count); index from 0.
std::pair<std::int64_t, std::int64_t> parse_shard(const std::string& text);

}  // namespace qkscope::cli
