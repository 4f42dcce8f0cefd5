// The BLAKE2b hash (RFC 7693) with a digest of eight bytes and no key.
#pragma once

#include <cstdint>
#include <string_view>

namespace qkscope {

// Returns the digest as a little-endian number.
std::uint64_t blake2b_64(std::string_view message);

}  // namespace qkscope
