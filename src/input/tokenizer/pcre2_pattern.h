// Any expression through PCRE2. A build without PCRE2 has pcre2_absent.cpp instead of
// pcre2_pattern.cpp: it refuses every expression.
#pragma once

#include <string>

#include "input/tokenizer/pattern.h"

namespace qkscope {

// `where` names the expression in messages.
PatternPointer make_pcre2_pattern(const std::string& expression, const std::string& where);

}  // namespace qkscope
