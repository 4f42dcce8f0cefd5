#include "paths.h"

namespace qkscope {

std::string source_path(std::string_view within) {
  std::string path = QKSCOPE_SOURCE_DIR;
  if (!within.empty()) path.append("/").append(within);
  return path;
}

std::string program_folder() {
  return QKSCOPE_PROGRAM_DIR;
}

}  // namespace qkscope
