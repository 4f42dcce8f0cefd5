// What must hold for the rows of a head file, whoever wrote it.
#pragma once

#include <string>

#include "qkscope/captures.h"

namespace qkscope {

// Throws bad input naming `path` and the row.
void check_finite(const HeadRows& rows, const std::string& path);
void check_distinct(const HeadRows& rows, const std::string& path);  // (example, position) once

}  // namespace qkscope
