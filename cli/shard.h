// Parses --shard: "i/n" is one of n equal parts of a dataset or a sweep; "auto" takes i and n from
// environment variables of the scheduler.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace qkscope::cli {

// Returns (index, count), with 0 <= index < count.
std::pair<std::int64_t, std::int64_t> parse_shard(const std::string& text);

}  // namespace qkscope::cli
