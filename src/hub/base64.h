// Bytes as text in the alphabet of RFC 4648.
#pragma once

#include <string>
#include <string_view>

namespace qkscope {

std::string base64(std::string_view bytes);

}  // namespace qkscope
