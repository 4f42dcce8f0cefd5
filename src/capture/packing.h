// Which consecutive examples run together.
#pragma once

#include <cstdint>

namespace qkscope {

struct Packing {
  std::int64_t examples = 1;  // this many in any case
  std::int64_t tokens = 0;    // and more while they have at most so many tokens; 0: no more

  // Whether a batch of `count` examples and `held` tokens takes one more of `length` tokens.
  bool takes(std::int64_t count, std::int64_t held, std::int64_t length) const {
    constexpr std::int64_t kMostPacked = 1024;  // texts of a word or none fill no batch by tokens
    if (count < examples) return true;
    return tokens > 0 && count < kMostPacked && held + length <= tokens;
  }
};

}  // namespace qkscope
