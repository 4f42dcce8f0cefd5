// The splitting expressions of the known model families, matched by hand.
#pragma once

#include <string_view>

#include "tokenizer/pattern.h"

namespace qkscope {

extern const char* const kGpt2Expression;

// Null when the expression is none of the known families'.
PatternPointer make_family_pattern(std::string_view expression);

}  // namespace qkscope
