// Reads one head file of a capture, ours or a foreign one without metadata.
#pragma once

#include <string>

#include "qkscope/captures.h"

namespace qkscope {

struct HeadFile {
  HeadRows rows;
  Metadata metadata;  // empty where the file has none
};

// Reads and checks everything: columns and their types, nulls, vector length, numbers that are not
// finite, more than one sliding window, the same (example, position) twice. Every complaint is bad
// input and names the file and the row.
HeadFile read_head_file(const std::string& path);

// The footer only.
Metadata read_head_metadata(const std::string& path);

}  // namespace qkscope
