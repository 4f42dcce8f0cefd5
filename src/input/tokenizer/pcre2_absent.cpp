// Replaces pcre2_pattern.cpp in builds without PCRE2.
#include "base/core/error.h"
#include "input/tokenizer/tokenizer_components.h"

namespace qkscope {

SearchPattern make_pcre2_pattern(const std::string& expression, const std::string& where) {
  reject(
      "{}: the pattern '{}' is none of the known ones, and this build of qkscope has no PCRE2 to "
      "run it; install libpcre2-dev and build again",
      where, expression);
}

}  // namespace qkscope
