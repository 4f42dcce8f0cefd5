// Where the tests find the project's files and programs. The absolute paths are in one object, so
// that the compiler's cache serves the tests of every checkout.
#pragma once

#include <string>
#include <string_view>

namespace qkscope {

// The absolute path of a file or folder of the source tree: source_path("tests/golden/").
std::string source_path(std::string_view within = {});

// One of the small models and answers of other programs: golden_path("llama_gqa").
inline std::string golden_path(std::string_view name) {
  return source_path("tests/golden/") + std::string(name);
}

// The folder with the programs of this build.
std::string program_folder();

}  // namespace qkscope
