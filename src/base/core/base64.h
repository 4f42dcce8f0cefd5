// Base64 encoding with padding (RFC 4648).
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace qkscope {

std::string base64(std::span<const std::byte> bytes);

}  // namespace qkscope
