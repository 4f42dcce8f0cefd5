// Folders that a command writes into at its end.
#pragma once

#include <string>

namespace qkscope::cli {

// Bad input where the folder is not there and cannot be made, or may not be written to: said before
// hours of computing. Nothing is made.
void check_output_folder(const std::string& path);

}  // namespace qkscope::cli
