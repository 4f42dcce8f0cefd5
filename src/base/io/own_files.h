// Where the running code lies: what was installed or built beside it is looked for from there.
#pragma once

#include <filesystem>

namespace qkscope {

// The shared library that holds this code, or the program where that holds it; "" where the loader
// does not know.
std::filesystem::path library_file();

std::filesystem::path program_file();

}  // namespace qkscope
