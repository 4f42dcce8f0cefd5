#include "io/data_folder.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "io/own_files.h"

namespace qkscope {
namespace fs = std::filesystem;

std::vector<std::string> data_folders() {
  if (const char* chosen = std::getenv("QKSCOPE_DATA"); chosen != nullptr && *chosen != '\0')
    return {chosen};
  std::vector<std::string> folders;
  const auto add = [&](const fs::path& file, const char* way) {
    auto folder = (file.parent_path() / way).lexically_normal().string();
    if (!file.empty() && std::find(folders.begin(), folders.end(), folder) == folders.end())
      folders.push_back(std::move(folder));
  };
  add(library_file(), QKSCOPE_LIBRARY_TO_DATA);
  add(program_file(), QKSCOPE_PROGRAM_TO_DATA);
  folders.emplace_back(QKSCOPE_SOURCE_DIR "/share");
  return folders;
}

}  // namespace qkscope
