// What a user reads when a head file is refused.
#pragma once

#include <string>

#include "error_message.h"
#include "qkscope/captures.h"

namespace qkscope {

inline std::string complaint(const std::string& path) {
  return bad_input_message([&] { read_head_file(path); });
}

}  // namespace qkscope
