// Folders that a command writes into at its end.
#pragma once

#include <string>

namespace qkscope::cli {

// Bad input where the folder is not there and cannot be made, or may not be written to: said before
// hours of computing. Nothing is made. An address of an object store must be reachable.
void check_output_folder(const std::string& path);

// The same for commands that write files of this machine only.
void check_local_output(const std::string& path);

}  // namespace qkscope::cli
