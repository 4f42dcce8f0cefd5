// Returns the message of the error that reading a head file throws.
#pragma once

#include <string>

#include "error_message.h"
#include "qkscope/captures.h"

namespace qkscope {

inline std::string complaint(const std::string& path) {
  return bad_input_message([&] { read_head_file(path); });
}

}  // namespace qkscope
