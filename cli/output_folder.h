// Checks of output folders before a long computation.
#pragma once

#include <string>

namespace qkscope::cli {

// Throws a bad-input error if the folder does not exist and cannot be created, or is not writable.
// Creates nothing. An address of an object store must be reachable.
void check_output_folder(const std::string& path);

// Like check_output_folder(), for commands that cannot write to an object store.
void check_local_output(const std::string& path);

}  // namespace qkscope::cli
