// Paths of files installed with qkscope: data (the demo, published numbers, configurations) and
// helper programs.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace qkscope {

// Returns the path of the shared library that holds this code, or of the program if it is linked
// statically; "" if the dynamic loader cannot tell.
std::filesystem::path own_library_path();
std::filesystem::path own_program_path();

// Returns candidate folders that hold demo/, published/ and configs/, in order of preference; they
// need not exist. If $QKSCOPE_DATA is set, it is the only candidate. Otherwise share/qkscope of the
// installation, then share/ of the source tree (not in packaged builds).
std::vector<std::string> shared_data_folders();

// Returns candidate folders for helper programs such as a bundled gnuplot: libexec/qkscope of the
// installation. The folders need not exist.
std::vector<std::string> helper_program_folders();

}  // namespace qkscope
