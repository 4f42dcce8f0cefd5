// Under the sanitizers everything is some ten times slower: fewer repetitions then.
#pragma once

namespace qkscope {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace qkscope
